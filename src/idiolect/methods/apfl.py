"""APFL: adaptive personalised federated learning."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, mixed_companion

__all__ = ["apfl"]


def apfl(alpha: float = 0.5, learned: bool = False, shared_first: bool = False) -> Method:
    """A private model trained through its mixture with the shared one; the shared one is FedAvg's.

    Deng, Kamani, Mahdavi 2020, https://arxiv.org/abs/2003.13461

    Args:
        alpha: share of the private model in [0, 1]; SuPerFed's comparison uses 0.25.
        learned: every client learns its own alpha.
        shared_first: mixes with the shared model after its step.
    """
    return chain(average(), mixed_companion(alpha, learned, shared_first), name="apfl")
