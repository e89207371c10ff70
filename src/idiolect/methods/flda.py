"""FLDA: federated learning with domain adaptation."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, gated_companion

__all__ = ["flda"]


def flda(companion_init: str = "fresh", fixed_gate: float | None = None) -> Method:
    """A private model beside the shared one; a gate decides, example by example, how much each of them counts.

    Peterson, Kanani, Marathe 2019, https://arxiv.org/abs/1912.06733

    Args:
        companion_init: ``fresh`` or ``copy``.
        fixed_gate: a constant in place of the gate; 1 is FedAvg, 0 local training.
    """
    return chain(average(), gated_companion(companion_init, fixed_gate), name="flda")
