"""FedDML: federated mutual learning."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, mutual_companion

__all__ = ["feddml"]


def feddml(
    shared_weight: float = 0.5,
    own_weight: float = 0.5,
    temperature: float = 1.0,
    companion_init: str = "fresh",
) -> Method:
    """A private model and the shared one teach each other on every batch.

    Shen et al. 2020, https://arxiv.org/abs/2006.16765; called FML there, and ``fml`` is another name of it here.

    Args:
        shared_weight, own_weight: of the labels for either model, in [0, 1].
        temperature: of the divergences.
        companion_init: ``fresh`` or ``copy``.
    """
    part = mutual_companion(shared_weight, own_weight, temperature, companion_init)
    return chain(average(), part, name="feddml")
