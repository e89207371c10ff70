"""ScaMAP: MAP whose shared stage is corrected by control variates."""

from __future__ import annotations

from typing import Any

from idiolect.core import Method, chain
from idiolect.methods import map
from idiolect.methods.extended_signature import with_options_of
from idiolect.methods.scaffold import scaffold

__all__ = ["scamap"]


@with_options_of(map.map_)
def scamap(
    *,
    step: float = 1.0,
    lr_scale: float | None = None,
    clip_norm: float | None = 10.0,
    control_rate: str = "population",
    **options: Any,
) -> Method:
    """SCAFFOLD, restricted softmax and the inherited private model in one; controls come from stage 1 alone.

    Li et al., IEEE TKDE 2024 (MAP), section 5.

    Args:
        alpha, rule, min_count: of the restricted softmax; see FedRS.
        transfer, transfer_weight, temperature, kd_form: of the private stage; see MAP.
        momentum, schedule, momentum_max, hpm_init, hpm_statistics, counter: of the inherited model; see FedPHP.
        shared_share, private_share, private_lr_scale, private_min_steps, rounding: see MAP.
        step, lr_scale, clip_norm, control_rate: of the shared stage; see SCAFFOLD.
    """
    _, restricted, private = map.map_(**options).parts
    corrected = scaffold(step, lr_scale=lr_scale, clip_norm=clip_norm, control_rate=control_rate)
    return chain(corrected, restricted, private, name="scamap")


presets: dict[str, dict[str, Any]] = {
    "paper": {**map.presets["paper"], "lr_scale": 1.0, "clip_norm": None, "control_rate": "population"},
    "official": {
        **map.presets["official"],
        "private_share": 0.2,
        "private_lr_scale": 0.5,
        "lr_scale": 1.0,
        "clip_norm": None,
        "control_rate": "cohort",
    },
}
