"""The cohort engine: all clients of a round as one batched computation."""
