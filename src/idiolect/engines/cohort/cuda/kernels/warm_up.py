"""Compiling the Triton kernels of a step ahead of its first run, several at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, fx

__all__ = ["warm_up"]

THREADS = 8
SEVERAL = 24  # rows along the first axis up to which a kernel's form depends on their number
APART = 64  # numbers of which clients' weights lie a multiple apart on lanes, which a kernel makes use of
FEW = 16  # taken of more: as few as give it the same form


def warm_up(graph: fx.GraphModule) -> None:
    """Runs every operation of ours in ``graph`` once, on memory as it is; elsewhere than on CUDA, none."""
    ours = [node for node in graph.graph.nodes if getattr(node.target, "namespace", "") == "idiolect"]
    on_gpu = [node for node in ours if node.meta["val"][0].is_cuda]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(_run, on_gpu))


def _run(node: fx.Node) -> None:
    """Where there is no memory for it beside others, the kernel is compiled when it is first run."""
    with suppress(torch.OutOfMemoryError):
        arguments = [_uninitialised(a.meta["val"]) if isinstance(a, fx.Node) else a for a in node.args]
        with torch.cuda.device(arguments[0].device):
            node.target(*arguments)  # type: ignore[operator]


def _uninitialised(like: Any) -> Tensor:
    size = (len(like) if len(like) <= SEVERAL else FEW, *like.shape[1:])
    strides = (-(-like.stride(0) // APART) * APART, *like.stride()[1:])
    return torch.empty_strided(size, strides, dtype=like.dtype, device=like.device)
