"""Local optimisers, SGD and Adam, each a pair of pure functions over trees."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from idiolect.core.trees import Flat, Flats, Slot, tree_leaves, tree_map, zeros_like

__all__ = ["Optimiser", "adam", "scale_without_momentum", "sgd"]


class Optimiser(NamedTuple):
    init: Callable[[Flats], Slot]  # params -> memory
    update: Callable[[Flats, Slot, Flats, float | Tensor], tuple[Flats, Slot]]  # grads, memory, params, lr


def sgd(momentum: float = 0.0, weight_decay: float = 0.0, clip_norm: float | None = None) -> Optimiser:
    """Stochastic gradient descent with heavy-ball momentum, as ``torch.optim.SGD``.

        g <- g + weight_decay * w;   v <- momentum * v + g;   w <- w - lr * v

    Args:
        clip_norm: scales the gradient of each tree down to this norm before weight decay enters; None is off.
    """

    def init(params: Flats) -> Slot:
        return zeros_like(params) if momentum else {}

    def update(grads: Flats, velocity: Slot, params: Flats, lr: float | Tensor) -> tuple[Flats, Slot]:
        if clip_norm is not None:
            grads = {tree: _clipped(flat, clip_norm) for tree, flat in grads.items()}
        if weight_decay:
            grads = tree_map(lambda g, p: torch.add(g, p, alpha=weight_decay), grads, params)
        if momentum:
            velocity = tree_map(lambda v, g: torch.add(g, v, alpha=momentum), velocity, grads)
            grads = velocity
        return tree_map(lambda p, g: _descend(p, g, lr), params, grads), velocity

    return Optimiser(init, update)


def scale_without_momentum(scene: float, own: float = 0.0) -> float:
    """Returns the factor on a learning rate chosen for the momentum ``scene`` when steps have the momentum ``own``.

    In the long run momentum m makes steps 1 / (1 - m) times as long.  Plain steps that long diverge where gradients
    are steep, so the factor is the square root of that.

    >>> round(scale_without_momentum(0.9), 2), scale_without_momentum(0.0), scale_without_momentum(0.9, own=0.9)
    (3.16, 1.0, 1.0)
    """
    return math.sqrt((1 - own) / (1 - scene)) if scene < 1 else 1.0


def adam(
    beta_one: float = 0.9,
    beta_two: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
    anneal_over: int | None = None,
) -> Optimiser:
    """Adam with bias correction, as ``torch.optim.Adam``, with an optional cosine schedule.

    Args:
        anneal_over: steps over which the learning rate falls to 0 along a cosine; None keeps it constant.
    """

    def init(params: Flats) -> Slot:
        step = torch.zeros_like(tree_leaves(params)[0].sum())
        return {"m": zeros_like(params), "v": zeros_like(params), "step": step}

    def update(grads: Flats, memory: Slot, params: Flats, lr: float | Tensor) -> tuple[Flats, Slot]:
        if weight_decay:
            grads = tree_map(lambda g, p: g + weight_decay * p, grads, params)
        step = memory["step"] + 1
        m = tree_map(lambda m, g: beta_one * m + (1 - beta_one) * g, memory["m"], grads)
        v = tree_map(lambda v, g: beta_two * v + (1 - beta_two) * g**2, memory["v"], grads)
        if anneal_over:
            lr = lr * (1 + torch.cos(math.pi * memory["step"] / anneal_over)) / 2
        size = lr / (1 - beta_one**step)
        spread = (1 - beta_two**step).sqrt()
        new = tree_map(lambda p, m, v: p - size * m / (v.sqrt() / spread + epsilon), params, m, v)
        return new, {"m": m, "v": v, "step": step}

    return Optimiser(init, update)


def _descend(p: Tensor, g: Tensor, lr: float | Tensor) -> Tensor:
    """``p - lr * g``, in one pass over memory."""
    return torch.addcmul(p, g, lr, value=-1) if isinstance(lr, Tensor) else torch.add(p, g, alpha=-lr)


def _clipped(grads: Flat, norm_max: float) -> Flat:
    if not tree_leaves(grads):
        return grads
    norm = torch.stack([(g**2).sum() for g in tree_leaves(grads)]).sum().sqrt()
    scale = (norm_max / (norm + 1e-6)).clamp(max=1.0)
    return tree_map(lambda g: g * scale, grads)
