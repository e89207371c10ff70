"""Converts trees of tensors to trees of NumPy arrays and back, to send them between processes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from idiolect.core.trees import tree_map

__all__ = ["ALIGNMENT", "aligned", "copied_tensors", "to_arrays", "to_tensors"]

ALIGNMENT = 64  # bytes, as torch aligns its own memory: rounding depends on it


def to_arrays(tree: Any) -> Any:
    """Returns the tree with arrays for tensors; they share the memory of tensors on the host."""
    return tree_map(
        lambda leaf: leaf.detach().cpu().numpy() if isinstance(leaf, Tensor) else leaf,
        tree,
    )


def to_tensors(tree: Any) -> Any:
    """Returns the tree with read-only tensors in the memory of its arrays; arrays that are not aligned are copied."""
    return tree_map(lambda leaf: _tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)


def copied_tensors(tree: Any) -> Any:
    """Returns the tree with tensors for arrays, in memory of their own."""
    return tree_map(lambda leaf: torch.tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)


def aligned(tensor: Tensor) -> Tensor:
    """Returns the tensor, or a copy of it if its memory is not aligned as torch aligns its own."""
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def _tensor(array: NDArray[Any]) -> Tensor:
    return aligned(torch.from_numpy(array) if array.flags.writeable else _of_read_only(array))


def _of_read_only(array: NDArray[Any]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)
