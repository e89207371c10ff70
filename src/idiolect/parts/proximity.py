"""How far a model is from a reference: the forms that papers and their code give a proximal term.

sq_half         1/2 ||w - r||^2                                    FedProx, Ditto
sq              ||w - r||^2                                        SuPerFed, FedPHP
norm            sum over tensors of ||w_i - r_i||                  SuPerFed's code
mean_smooth_l1  mean over tensors of the mean smooth L1 distance   MAP's code: nearly without effect for usual weights
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.core import Flat
from idiolect.core.trees import squared_distance

__all__ = ["FORMS"]


def sq(params: Flat, reference: Flat) -> Tensor:
    return squared_distance(params, reference)


def sq_half(params: Flat, reference: Flat) -> Tensor:
    return squared_distance(params, reference) / 2


def norm(params: Flat, reference: Flat) -> Tensor:
    if not reference:
        return torch.zeros(())
    return torch.stack([torch.linalg.vector_norm(params[n] - r) for n, r in reference.items()]).sum()


def mean_smooth_l1(params: Flat, reference: Flat) -> Tensor:
    if not reference:
        return torch.zeros(())
    return torch.stack([F.smooth_l1_loss(params[n], r) for n, r in reference.items()]).mean()


FORMS: dict[str, Callable[[Flat, Flat], Tensor]] = {
    "sq_half": sq_half,
    "sq": sq,
    "norm": norm,
    "mean_smooth_l1": mean_smooth_l1,
}
