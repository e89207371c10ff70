"""Ditto, and DittoRS: a private model near the shared one."""

from __future__ import annotations

from typing import Any

from idiolect.core import Method, chain
from idiolect.parts import average, proximal_companion, restricted_softmax

__all__ = ["ditto", "dittors"]


def ditto(weight: float = 0.1, epochs: float | None = None, form: str = "sq_half") -> Method:
    """FedAvg, and beside it a private model kept near the received one.

    Li et al., ICML 2021, https://arxiv.org/abs/2012.04221

    Args:
        weight: lambda >= 0 of lambda/2 ||v - theta_t||^2; 1 in the paper, or chosen from 0.1, 1 and 2.
        epochs: E_p of the companion; None takes the scene's.
        form: ``sq_half`` (the paper), ``sq``, ``norm`` or ``mean_smooth_l1`` (MAP's code).
    """
    return chain(average(), proximal_companion(weight, epochs, form), name="ditto")


def dittors(
    weight: float = 0.1,
    epochs: float | None = None,
    alpha: float = 0.9,
    rule: str = "paper",
    min_count: int = 1,
    form: str = "sq_half",
) -> Method:
    """Ditto whose shared model trains with restricted softmax; the private one with the plain softmax.

    Li et al., IEEE TKDE 2024 (MAP), section 5.

    Args:
        weight, epochs, form: of the private model; see Ditto.
        alpha, rule, min_count: of the restricted softmax; see FedRS.
    """
    shared = restricted_softmax(alpha, rule, min_count)
    return chain(average(), shared, proximal_companion(weight, epochs, form), name="dittors")


presets: dict[str, dict[str, Any]] = {
    "paper": {"weight": 1.0, "form": "sq_half"},
    "official": {"form": "mean_smooth_l1"},
}
dittors_presets = {"official": {"form": "mean_smooth_l1", "rule": "freq_max"}}
