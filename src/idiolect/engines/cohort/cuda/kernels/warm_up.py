"""Warm-up: the Triton kernels of a step are compiled ahead of its first run, several at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, fx

__all__ = ["warm_up"]

THREADS = 8
SEVERAL = 24  # rows along the first axis up to which a compiled kernel depends on their number
APART = 64  # clients' weights lie a multiple of so many numbers apart on lanes, which a compiled kernel makes use of
FEW = 16  # rows that stand for more: as few as compile to the same kernel


def warm_up(graph: fx.GraphModule) -> None:
    """Runs every operator of ours on CUDA in ``graph`` once, on uninitialised memory."""
    ours = [node for node in graph.graph.nodes if getattr(node.target, "namespace", "") == "idiolect"]
    on_gpu = [node for node in ours if node.meta["val"][0].is_cuda]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(_run, on_gpu))


def _run(node: fx.Node) -> None:
    """Runs one operator; where memory is short, its kernel is compiled later, when it first runs."""
    with suppress(torch.OutOfMemoryError):
        arguments: list[Any] = [
            _uninitialised(a.meta["val"]) if isinstance(a, fx.Node) else a for a in node.args
        ]
        run: Any = node.target
        with torch.cuda.device(arguments[0].device):
            run(*arguments)


def _uninitialised(like: Any) -> Tensor:
    size = (len(like) if len(like) <= SEVERAL else FEW, *like.shape[1:])
    strides = (-(-like.stride(0) // APART) * APART, *like.stride()[1:])
    return torch.empty_strided(size, strides, dtype=like.dtype, device=like.device)
