"""MAP: model aggregation and personalisation with restricted softmax and an inherited private model."""

from __future__ import annotations

from typing import Any

from idiolect.core import Method, chain
from idiolect.parts import average, inherited_model, restricted_softmax

__all__ = ["map_"]


def map_(
    alpha: float = 0.9,
    rule: str = "paper",
    min_count: int = 1,
    transfer: str = "kd",
    transfer_weight: float = 0.01,
    temperature: float = 4.0,
    kd_form: str = "kl",
    momentum: float = 0.9,
    schedule: str = "mu_a",
    momentum_max: float = 1.0,
    hpm_init: str = "lazy",
    hpm_statistics: str = "ema",
    shared_share: float = 0.5,
    private_share: float = 0.5,
    private_lr_scale: float = 1.0,
    private_min_steps: int = 0,
    rounding: str = "ceil",
    counter: str = "before",
) -> Method:
    """Half of local training serves the shared model with restricted softmax; after the upload, the other half
    serves the client's own model, which inherits from its history.

    Li, Song, Li, Li, Shao, Yang, Zhan, IEEE TKDE 2024, algorithm 1.  For clients that hold every class
    (section 5.4) use the preset ``complete``.

    Args:
        alpha, rule, min_count: of the restricted softmax; see FedRS.
        transfer: ``kd`` (default), ``mmd``, ``l2`` or ``prox``.
        transfer_weight: lambda in [0, 1].
        temperature: tau > 0 of ``kd``; 4 in the paper.
        kd_form: of ``kd``: ``kl`` (the paper), ``teacher_only`` (the authors' code), ``soft_cross_entropy`` or
            ``kl_elements``.
        momentum, schedule, momentum_max, hpm_init, hpm_statistics, counter: of the inherited model; see FedPHP.
        shared_share, private_share: of the scene's local epochs before and after the upload.
        private_lr_scale: of the scene's learning rate, in the private stage.
        private_min_steps: least number of private steps.
        rounding: which stage gets the odd step.
    """
    private = inherited_model(
        transfer,
        transfer_weight,
        temperature,
        kd_form,
        momentum,
        schedule,
        momentum_max,
        hpm_init,
        hpm_statistics,
        shared_share,
        private_share,
        private_lr_scale,
        private_min_steps,
        rounding,
        counter,
    )
    return chain(average(), restricted_softmax(alpha, rule, min_count), private, name="map")


PAPER: dict[str, Any] = {
    "alpha": 0.9,
    "rule": "paper",
    "min_count": 1,
    "transfer": "kd",
    "transfer_weight": 0.01,
    "temperature": 4.0,
    "kd_form": "kl",
    "momentum": 0.9,
    "schedule": "mu_a",
    "momentum_max": 1.0,
    "shared_share": 0.5,
    "private_share": 0.5,
    "private_lr_scale": 1.0,
    "private_min_steps": 0,
}
OFFICIAL: dict[str, Any] = {
    "rule": "uniform",
    "kd_form": "teacher_only",
    "momentum_max": 0.9,
    "hpm_init": "theta0",
    "hpm_statistics": "recompute",
    "shared_share": 1.0,
    "private_share": 0.1,
    "private_lr_scale": 0.2,
    "private_min_steps": 5,
}
presets: dict[str, dict[str, Any]] = {
    "paper": PAPER,
    "official": OFFICIAL,
    "complete": {"rule": "freq"},
    "complete_official": {**OFFICIAL, "rule": "freq_max"},
}
