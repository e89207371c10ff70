"""The HTML page of a report: its data, its template, style and scripts."""
