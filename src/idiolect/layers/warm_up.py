"""Compiling the Triton kernels of a step ahead of its first run, several at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, fx

__all__ = ["warm_up"]

THREADS = 8
LEAST = 16  # rows along the first axis: as few as give the kernel the same form


def warm_up(graph: fx.GraphModule) -> None:
    """Runs every operation of ours in ``graph`` once, on a few rows of nothing; elsewhere than on CUDA, none."""
    ours = [node for node in graph.graph.nodes if getattr(node.target, "namespace", "") == "idiolect"]
    on_gpu = [node for node in ours if node.meta["val"][0].is_cuda]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(_run, on_gpu))


def _run(node: fx.Node) -> None:
    arguments = [_few(a.meta["val"]) if isinstance(a, fx.Node) else a for a in node.args]
    with torch.cuda.device(arguments[0].device):
        node.target(*arguments)  # type: ignore[operator]


def _few(like: Any) -> Tensor:
    rows = min(len(like), LEAST)
    size = (rows, *like.shape[1:])
    return torch.empty_strided(size, like.stride(), dtype=like.dtype, device=like.device)
