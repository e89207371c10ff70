"""A function of trees as a graph of tensor operations on their leaves, written down once and then run without vmap."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from idiolect.core import Tree
from idiolect.core.trees import flatten, unflatten

__all__ = ["graph_of"]


def graph_of(
    function: Callable[..., Tree], leaves: list[Tensor], takes: Any
) -> tuple[fx.GraphModule, Hashable]:
    """The graph from leaves to leaves, idle operations left in it, and the form of the tree that it gives.

    Args:
        leaves: of the arguments, for their shapes and strides, each an object of its own: a trace knows them by it.
            New tensors go to the device of the first.
        takes: the form of the tuple of arguments.
    """
    gives: Hashable = None

    def on_leaves(*flat: Tensor) -> list[Tensor]:
        nonlocal gives
        found, gives = flatten(function(*unflatten(flat, takes)))
        return found

    with torch.device(leaves[0].device):
        graph = make_fx(on_leaves, tracing_mode="fake", _allow_non_fake_inputs=True)(*leaves)
    return graph, gives
