"""SuPerFed-MM and SuPerFed-LM: a connected subspace between a shared and a private model."""

from __future__ import annotations

from typing import Any

from idiolect.core import Method, chain
from idiolect.methods.extended_signature import with_options_of
from idiolect.parts import average, mixed_subspace

__all__ = ["superfed_lm", "superfed_mm"]


def superfed_mm(
    orthogonality: float = 2.0,
    proximity: float = 0.01,
    phase_one: float = 0.4,
    own_init: str = "shared",
    fixed_alpha: float | None = None,
    proximity_form: str = "sq",
) -> Method:
    """Shared and private model trained together at a random point between them, one coefficient per model.

    Hahn, Jeong, Lee 2022, https://arxiv.org/abs/2109.07628.  The mixing coefficient of evaluation is one for all
    clients, as in the paper, but chosen on validation data; the paper's choice on test data is reported as oracle.
    With ``valid=0`` it trains on all that is not test data, as the paper does, and the oracle's choice is the headline.

    Args:
        orthogonality: beta >= 0 of cos^2(w_g, w_l).
        proximity: gamma >= 0 of ||w_g - w_*||^2.
        phase_one: L/R in [0, 1]; 0.4 was best.
        own_init: ``shared`` (one second initialisation for all, as in the paper) or ``client``.
        fixed_alpha: a constant in place of the draws, for study.
        proximity_form: ``sq`` (the paper) or ``norm`` (the authors' code).
    """
    part = mixed_subspace("model", orthogonality, proximity, phase_one, own_init, fixed_alpha, proximity_form)
    return chain(average(), part, name="superfed_mm")


@with_options_of(superfed_mm)
def superfed_lm(**options: Any) -> Method:
    """SuPerFed with an independent mixing coefficient for every layer.

    Args:
        orthogonality, proximity, phase_one, own_init, fixed_alpha, proximity_form: as in SuPerFed-MM.
    """
    return chain(average(), mixed_subspace("layer", **options), name="superfed_lm")


presets: dict[str, dict[str, Any]] = {
    "paper": {
        "orthogonality": 2.0,
        "proximity": 0.01,
        "phase_one": 0.4,
        "own_init": "shared",
        "proximity_form": "sq",
    },
    "official": {"own_init": "client", "proximity_form": "norm"},
}
