"""FedNTD: preservation of the global knowledge by not-true distillation."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, not_true_distillation

__all__ = ["fedntd"]


def fedntd(weight: float = 1.0, temperature: float = 1.0) -> Method:
    """FedAvg whose clients remember what the received model knows about classes that they do not train on.

    Lee, Jeong, Shin, Bae, Yun, NeurIPS 2022, https://arxiv.org/abs/2106.03097

    Args:
        weight: beta >= 0 of the distillation.
        temperature: tau > 0 of the distillation.
    """
    return chain(average(), not_true_distillation(weight, temperature), name="fedntd")


presets = {"paper": {"weight": 1.0, "temperature": 1.0}}
