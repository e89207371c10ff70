"""ScaRS: SCAFFOLD with restricted softmax."""

from __future__ import annotations

from typing import Any

from idiolect.core import Method, chain
from idiolect.methods.scaffold import scaffold
from idiolect.parts import restricted_softmax

__all__ = ["scars"]


def scars(
    alpha: float = 0.9,
    rule: str = "paper",
    min_count: int = 1,
    step: float = 1.0,
    momentum: float = 0.0,
    lr_scale: float | None = None,
    clip_norm: float | None = 10.0,
    control_rate: str = "population",
) -> Method:
    """SCAFFOLD on the restricted-softmax loss.

    Li et al., IEEE TKDE 2024 (MAP), section 5.

    Args:
        alpha, rule, min_count: of the restricted softmax; see FedRS.
        step, momentum, lr_scale, clip_norm, control_rate: see SCAFFOLD.
    """
    corrected = scaffold(
        step, momentum=momentum, lr_scale=lr_scale, clip_norm=clip_norm, control_rate=control_rate
    )
    return chain(corrected, restricted_softmax(alpha, rule, min_count), name="scars")


presets: dict[str, dict[str, Any]] = {
    "paper": {
        "alpha": 0.9,
        "rule": "paper",
        "min_count": 1,
        "momentum": 0.0,
        "lr_scale": 1.0,
        "clip_norm": None,
        "control_rate": "population",
    },
    "official": {"rule": "uniform", "lr_scale": 1.0, "clip_norm": None, "control_rate": "cohort"},
}
