"""Local optimisers as values: a pair of pure functions over trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from idiolect.core.trees import Tree, tree_leaves, tree_map, zeros_like

__all__ = ["Optimiser", "sgd"]


class Optimiser(NamedTuple):
    init: Callable[[Tree], Tree]  # params -> memory
    update: Callable[[Tree, Tree, Tree, float | Tensor], tuple[Tree, Tree]]  # grads, memory, params, lr


def sgd(momentum: float = 0.0, weight_decay: float = 0.0, clip_norm: float | None = None) -> Optimiser:
    """Stochastic gradient descent with heavy-ball momentum, as ``torch.optim.SGD``.

        g <- g + weight_decay * w;   v <- momentum * v + g;   w <- w - lr * v

    Args:
        clip_norm: scales the gradient of each tree down to this norm before weight decay enters; None is off.
    """

    def init(params: Tree) -> Tree:
        return zeros_like(params) if momentum else {}

    def update(grads: Tree, velocity: Tree, params: Tree, lr: float | Tensor) -> tuple[Tree, Tree]:
        if clip_norm is not None:
            grads = {tree: _clipped(flat, clip_norm) for tree, flat in grads.items()}
        if weight_decay:
            grads = tree_map(lambda g, p: g + weight_decay * p, grads, params)
        if momentum:
            velocity = tree_map(lambda v, g: momentum * v + g, velocity, grads)
            grads = velocity
        return tree_map(lambda p, g: p - lr * g, params, grads), velocity

    return Optimiser(init, update)


def _clipped(grads: Tree, norm_max: float) -> Tree:
    if not tree_leaves(grads):
        return grads
    norm = torch.stack([(g**2).sum() for g in tree_leaves(grads)]).sum().sqrt()
    scale = (norm_max / (norm + 1e-6)).clamp(max=1.0)
    return tree_map(lambda g: g * scale, grads)
