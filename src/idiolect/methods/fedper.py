"""FedPer: federated learning with personalisation layers."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, private_layers

__all__ = ["fedper"]


def fedper(count: int = 1, head_init: str = "random", fine_tune_epochs: float = 0) -> Method:
    """Base layers are averaged; the last K_P units stay with each client.

    Arivazhagan, Aggarwal, Singh, Choudhary 2019, https://arxiv.org/abs/1912.00818.  The ablation with a linear
    base is this method on the model ``linear_base`` with as many ``units``.

    Args:
        count: K_P; units kept private counting from the output (the classifier is one); the paper studies 1 to 4.
        head_init: ``random`` (each client's own seed, as in the paper) or ``shared``.
        fine_tune_epochs: see ``private_layers``.
    """
    return chain(average(), private_layers(count, head_init, fine_tune_epochs), name="fedper")


presets = {"paper": {"count": 2, "head_init": "random", "fine_tune_epochs": 0}}
