"""Trees of tensors as trees of arrays, which travel between processes without a copy of their own."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from idiolect.core.trees import Tree, tree_map

__all__ = ["ALIGNMENT", "aligned", "copied_tensors", "to_arrays", "to_tensors"]

ALIGNMENT = 64  # bytes, as torch aligns memory of its own: rounding depends on it


def to_arrays(tree: Tree) -> Any:
    """Shares memory with the tensors where they lie on the host."""
    return tree_map(
        lambda leaf: leaf.detach().cpu().numpy() if isinstance(leaf, Tensor) else leaf,
        tree,
    )


def to_tensors(tree: Any) -> Tree:
    """Tensors in the memory of the arrays, not to be written to; an array that is not aligned is copied."""
    return tree_map(lambda leaf: _tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)


def copied_tensors(tree: Any) -> Tree:
    """Tensors with memory of their own."""
    return tree_map(lambda leaf: torch.tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)


def aligned(tensor: Tensor) -> Tensor:
    """The tensor, or a copy that begins where torch's own memory would."""
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def _tensor(array: np.ndarray) -> Tensor:
    return aligned(torch.from_numpy(array) if array.flags.writeable else _of_read_only(array))


def _of_read_only(array: np.ndarray) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)
