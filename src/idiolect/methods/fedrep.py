"""FedRep: exploiting shared representations."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import alternating_layers, average

__all__ = ["fedrep"]


def fedrep(
    count: int = 1, head_epochs: float = 10, body_epochs: float = 1, head_init: str = "random"
) -> Method:
    """A shared body and private heads, trained in turn: head with the body frozen, then body with the head frozen.

    Collins et al., ICML 2021, https://arxiv.org/abs/2102.07078

    Args:
        count: units of the head.
        head_epochs, body_epochs: in every round.
        head_init: ``random`` or ``shared``.
    """
    return chain(average(), alternating_layers(count, head_epochs, body_epochs, head_init), name="fedrep")


presets = {"paper": {"head_epochs": 10, "body_epochs": 1}}
