"""Triton kernels of the cohort engine; nothing here imports another room."""
