"""Progress of runs: who is told of it, and how long it will still take."""
