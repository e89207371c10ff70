"""Triton kernels of the cohort engine, and whether Triton is there; nothing here imports the rest of Idiolect.

Modules that import Triton are imported where a kernel is launched, so that the package works without it.
"""

from importlib.util import find_spec

__all__ = ["HAS_TRITON"]

HAS_TRITON = find_spec("triton") is not None  # it comes with PyTorch's builds for CUDA
