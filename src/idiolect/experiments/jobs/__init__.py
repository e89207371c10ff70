"""Runs side by side: the processes that make them, and campaigns of many runs."""
