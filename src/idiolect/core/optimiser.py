"""Local optimisers, SGD, Adam and AdamW, each a pair of pure functions over trees."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from idiolect.core.trees import Flat, Flats, Slot, tree_leaves, tree_map, zeros_like
from idiolect.errors import refuse_outside
from idiolect.option_parsing import read_choice

__all__ = [
    "Optimiser",
    "adam",
    "adamw",
    "local_optimiser",
    "resolved_optimiser",
    "scale_without_momentum",
    "sgd",
]

OWN_OPTIONS = ("beta_one", "beta_two", "epsilon")  # the scene gives the others
LARGEST_BETA = 0.999999
LEAST_EPSILON = 1e-30


class Optimiser(NamedTuple):
    """A pair of pure functions over trees; ``sgd``, ``adam`` and ``adamw`` make one."""

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
    clip_norm: float | None = None,
) -> Optimiser:
    """Adam with bias correction, as ``torch.optim.Adam``, with an optional cosine schedule.

        g <- g + weight_decay * w;   m <- beta_one m + (1 - beta_one) g;   v <- beta_two v + (1 - beta_two) g^2
        w <- w - lr * mhat / (sqrt(vhat) + epsilon)                 Kingma and Ba, ICLR 2015, algorithm 1

    Args:
        anneal_over: steps over which the learning rate falls to 0 along a cosine; None keeps it constant.
        clip_norm: as in ``sgd``.
    """
    return _moments(beta_one, beta_two, epsilon, weight_decay, clip_norm, anneal_over=anneal_over)


def adamw(
    beta_one: float = 0.9,
    beta_two: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
) -> Optimiser:
    """Adam with decoupled weight decay, as ``torch.optim.AdamW``.

    w <- (1 - lr * weight_decay) w, then Adam's step           Loshchilov and Hutter, ICLR 2019, algorithm 2
    """
    return _moments(beta_one, beta_two, epsilon, weight_decay, clip_norm, decoupled=True)


def _moments(
    beta_one: float,
    beta_two: float,
    epsilon: float,
    weight_decay: float,
    clip_norm: float | None,
    *,
    decoupled: bool = False,
    anneal_over: int | None = None,
) -> Optimiser:
    refuse_outside("beta_one", beta_one, 0, LARGEST_BETA)
    refuse_outside("beta_two", beta_two, 0, LARGEST_BETA)
    refuse_outside("epsilon", epsilon, LEAST_EPSILON)

    def init(params: Flats) -> Slot:
        leaves = tree_leaves(params)
        if not leaves:
            return {}
        return {"m": zeros_like(params), "v": zeros_like(params), "step": torch.zeros_like(leaves[0].sum())}

    def update(grads: Flats, memory: Slot, params: Flats, lr: float | Tensor) -> tuple[Flats, Slot]:
        if not memory:
            return params, memory
        if clip_norm is not None:
            grads = {tree: _clipped(flat, clip_norm) for tree, flat in grads.items()}
        if anneal_over:
            lr = lr * (1 + torch.cos(math.pi * memory["step"] / anneal_over)) / 2
        if weight_decay and decoupled:
            params = tree_map(lambda p: p * (1 - lr * weight_decay), params)
        elif weight_decay:
            grads = tree_map(lambda g, p: g + weight_decay * p, grads, params)
        step = memory["step"] + 1
        m = tree_map(lambda m, g: beta_one * m + (1 - beta_one) * g, memory["m"], grads)
        v = tree_map(lambda v, g: beta_two * v + (1 - beta_two) * g**2, memory["v"], grads)
        size = lr / (1 - beta_one**step)
        spread = (1 - beta_two**step).sqrt()
        new = tree_map(lambda p, m, v: p - size * m / (v.sqrt() / spread + epsilon), params, m, v)
        return new, {"m": m, "v": v, "step": step}

    return Optimiser(init, update)


OPTIMISERS: dict[str, Callable[..., Optimiser]] = {"sgd": sgd, "adam": adam, "adamw": adamw}


@lru_cache
def local_optimiser(
    text: str, momentum: float, weight_decay: float, clip_norm: float | None = None
) -> Optimiser:
    """Returns the optimiser that a scene names, such as ``adam(beta_two=0.99)``.

    Args:
        momentum: of SGD; Adam and AdamW have ``beta_one`` instead and do not read it.
    """
    name, given, _ = read_choice("optimiser", text, OPTIMISERS, lambda p: p.name in OWN_OPTIONS)
    own = {"momentum": momentum} if name == "sgd" else given
    return OPTIMISERS[name](**own, weight_decay=weight_decay, clip_norm=clip_norm)


def resolved_optimiser(text: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and all options of an optimiser as it is written, defaults included.

    >>> resolved_optimiser("adam(epsilon=1)")
    ('adam', {'beta_one': 0.9, 'beta_two': 0.999, 'epsilon': 1.0})
    """
    name, given, schema = read_choice("optimiser", text, OPTIMISERS, lambda p: p.name in OWN_OPTIONS)
    return name, schema.with_defaults(given)


def _descend(p: Tensor, g: Tensor, lr: float | Tensor) -> Tensor:
    """``p - lr * g``, in one pass over memory."""
    return torch.addcmul(p, g, lr, value=-1) if isinstance(lr, Tensor) else torch.add(p, g, alpha=-lr)


def _clipped(grads: Flat, norm_max: float) -> Flat:
    if not tree_leaves(grads):
        return grads
    norm = torch.stack([(g**2).sum() for g in tree_leaves(grads)]).sum().sqrt()
    scale = (norm_max / (norm + 1e-6)).clamp(max=1.0)
    return tree_map(lambda g: g * scale, grads)
