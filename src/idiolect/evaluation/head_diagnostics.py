"""Proxies, the rows of a linear head for each class: their norms and distances for observed and missing classes.

||w_c||,   ||grad w_c|| of the gradient accumulated over an epoch
O-O  sum_{i,j in O} ||w_i - w_j|| / |O|^2,   O-M  sum_{i in O, j in M} .. / (|O| |M|),   M-M  sum_{i,j in M} .. / |M|^2
O the observed and M the missing classes; the zeros on the diagonal count
Li et al., IEEE TKDE 2024 (MAP), section 4.1 and figure 6
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from idiolect.errors import UserError, refuse_unknown_choice

__all__ = ["Proxies", "accumulated_gradient_norms", "proxy_diagnostics"]


class Proxies(NamedTuple):
    """Norms of the proxies by class, and mean distances; NaN where one side has no class."""

    norms: Tensor  # [K]
    observed_observed: float
    observed_missing: float
    missing_missing: float


def proxy_diagnostics(weight: Tensor, observed: Iterable[int]) -> Proxies:
    """Computes the norms and mean distances of MAP's figure 6 for a head.

    Args:
        weight: the head's rows, [K, d].
        observed: classes with training samples; all others are missing.
    """
    rows, classes = weight.detach().double(), set(observed)
    outside = sorted(classes - set(range(len(rows))))
    if outside:
        raise UserError(f"class {outside[0]} is observed but the head has rows for 0 to {len(rows) - 1}")
    seen = torch.tensor([c in classes for c in range(len(rows))], device=rows.device)
    apart = (rows[:, None] - rows[None]).norm(dim=-1)

    def mean(one: Tensor, other: Tensor) -> float:
        return float(apart[one][:, other].mean())

    return Proxies(rows.norm(dim=1), mean(seen, seen), mean(seen, ~seen), mean(~seen, ~seen))


def accumulated_gradient_norms(gradients: Iterable[Tensor], accumulate: str = "gradient") -> Tensor:
    """Returns [K] the norm of the accumulated gradient by class, over the steps of an epoch.

    Args:
        gradients: of the head's rows, [K, d], one for each step.
        accumulate: ``gradient``: the norm of the sum over steps (the paper: "the gradient is accumulated across this
            training epoch"); ``norm``: the sum of the steps' norms.
    """
    refuse_unknown_choice("accumulate", accumulate, ("gradient", "norm"))
    steps = [gradient.detach().double() for gradient in gradients]
    if not steps:
        raise UserError("gradient norms need the gradient of at least one step")
    if accumulate == "gradient":
        norms: Tensor = torch.stack(steps).sum(0).norm(dim=1)
        return norms
    return torch.stack([step.norm(dim=1) for step in steps]).sum(0)
