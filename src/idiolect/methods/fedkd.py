"""FedKD: communication-efficient federated learning via knowledge distillation."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import adaptive_companion, low_rank_average

__all__ = ["fedkd"]


def fedkd(
    energy_start: float = 0.95,
    energy_end: float = 0.98,
    hidden_weight: float = 1.0,
    companion_init: str = "fresh",
) -> Method:
    """A private mentor and the shared mentee teach each other; the mentee's updates travel as factors of low rank.

    Wu, Wu, Lyu, Huang, Xie, Nature Communications 2022, https://arxiv.org/abs/2108.13323.  In released versions the
    loop that looks for the rank ends before the last singular value, so that an update which needs all of them is sent
    as nothing; and where the mentee itself is decomposed, not its update, it loses its smaller directions.

    On the demo scene the mentor ends above FedAvg and below Local: it has the size of the mentee here, so that it
    brings no capacity that Local lacks.

    Args:
        energy_start, energy_end: T_start and T_end in [0, 1], the share of an update's energy that is kept at the start
            and in the last round.
        hidden_weight: beta >= 0, weight of the distance between features; 1 in the paper.
        companion_init: ``fresh`` (the mentor begins at a seed of the client's own) or ``copy`` (as the mentee).
    """
    return chain(
        low_rank_average(energy_start, energy_end),
        adaptive_companion(hidden_weight, companion_init),
        name="fedkd",
    )


presets = {"paper": {"energy_start": 0.95, "energy_end": 0.98, "hidden_weight": 1.0}}
