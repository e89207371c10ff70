"""ScaMAP: MAP whose shared stage is corrected by control variates."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.methods.scaffold import scaffold
from idiolect.parts import inherited_model, restricted_softmax

__all__ = ["scamap"]


def scamap(
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
    step: float = 1.0,
) -> Method:
    """SCAFFOLD, restricted softmax and the inherited private model in one; controls come from stage 1 alone.

    Li et al., IEEE TKDE 2024 (MAP), section 5.

    Args:
        alpha, rule, min_count: of the restricted softmax; see FedRS.
        transfer, transfer_weight, temperature, kd_form: of the private stage; see MAP.
        momentum, schedule, momentum_max, hpm_init, hpm_statistics: of the inherited model; see FedPHP.
        shared_share, private_share, private_lr_scale, private_min_steps, rounding: see MAP.
        step: eta_g of SCAFFOLD.
    """
    private = inherited_model(
        transfer=transfer,
        transfer_weight=transfer_weight,
        temperature=temperature,
        kd_form=kd_form,
        momentum=momentum,
        schedule=schedule,
        momentum_max=momentum_max,
        hpm_init=hpm_init,
        hpm_statistics=hpm_statistics,
        shared_share=shared_share,
        private_share=private_share,
        private_lr_scale=private_lr_scale,
        private_min_steps=private_min_steps,
        rounding=rounding,
    )
    return chain(scaffold(step), restricted_softmax(alpha, rule, min_count), private, name="scamap")


presets = {
    "official": {
        "rule": "uniform",
        "kd_form": "teacher_only",
        "momentum_max": 0.9,
        "hpm_init": "theta0",
        "hpm_statistics": "recompute",
        "shared_share": 1.0,
        "private_share": 0.2,
        "private_lr_scale": 0.5,
        "private_min_steps": 5,
    }
}
