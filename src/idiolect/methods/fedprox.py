"""FedProx, and FedProx with a local update at the end."""

from __future__ import annotations

from typing import Any

from idiolect.core import Method, chain
from idiolect.parts import average, fine_tune, proximal

__all__ = ["fedprox", "fedprox_lu"]


def fedprox(weight: float = 0.01, form: str = "sq_half") -> Method:
    """FedAvg with a proximal term that keeps the local model near the received one.

    Li et al., MLSys 2020, https://arxiv.org/abs/1812.06127

    Args:
        weight: mu >= 0 of mu/2 ||w - w_t||^2; the paper takes 1 on images and 0.001 to 1 in all.
        form: ``sq_half`` (the paper), ``sq``, ``norm`` (SuPerFed's code) or ``mean_smooth_l1`` (MAP's code).
    """
    return chain(average(), proximal(weight, form), name="fedprox")


def fedprox_lu(
    weight: float = 0.01, form: str = "sq_half", epochs: float = 1, lr_scale: float = 1.0
) -> Method:
    """FedProx, then every client fine-tunes the final model without the proximal term; baseline of SuPerFed.

    Args:
        weight, form: of the proximal term; see FedProx.
        epochs: of fine-tuning, >= 0.
        lr_scale: of the scene's learning rate, in fine-tuning.
    """
    return chain(average(), proximal(weight, form), fine_tune(epochs, lr_scale), name="fedprox_lu")


presets: dict[str, dict[str, Any]] = {
    "paper": {"weight": 1.0, "form": "sq_half"},
    "official": {"form": "mean_smooth_l1"},
}
