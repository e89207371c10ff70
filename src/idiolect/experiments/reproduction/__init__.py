"""From a paper's table or figure to runs, and from runs to its numbers."""
