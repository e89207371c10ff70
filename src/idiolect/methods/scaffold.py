"""SCAFFOLD: stochastic controlled averaging."""

from __future__ import annotations

from typing import Any

from idiolect.core import Method, chain
from idiolect.parts import average, control_variates

__all__ = ["scaffold"]


def scaffold(
    step: float = 1.0,
    control: str = "mean_gradient",
    momentum: float = 0.0,
    lr_scale: float | None = None,
    clip_norm: float | None = 10.0,
    control_rate: str = "population",
) -> Method:
    """FedAvg whose local gradients are corrected for the drift towards the client's own optimum.

    Karimireddy et al., ICML 2020, https://arxiv.org/abs/1910.06378

    Args:
        step: eta_g, the server's step; 1 in the paper, 0.5 to 0.9 in MAP's grid.
        control: ``mean_gradient`` or ``option_two``.
        momentum: of local SGD before the upload, 0 in the paper.
        lr_scale: of the scene's learning rate, before the upload; None makes up for the scene's momentum.
        clip_norm: of corrected gradients; None in the paper.
        control_rate: ``population`` (the paper), or ``cohort`` (the code of MAP's authors).
    """
    corrected = control_variates(control, momentum, lr_scale, clip_norm, control_rate)
    return chain(average(step), corrected, name="scaffold")


presets: dict[str, dict[str, Any]] = {
    "paper": {
        "step": 1.0,
        "control": "option_two",
        "momentum": 0.0,
        "lr_scale": 1.0,
        "clip_norm": None,
        "control_rate": "population",
    },
    "official": {"lr_scale": 1.0, "clip_norm": None, "control_rate": "cohort"},
}
