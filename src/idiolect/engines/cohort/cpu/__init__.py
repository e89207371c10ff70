"""The cohort engine on a CPU: stages as traced steps of blocks of clients."""
