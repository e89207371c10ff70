"""FedAvg, and FedAvg with a local update at the end."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, fine_tune

__all__ = ["fedavg", "fedavg_lu"]


def fedavg() -> Method:
    """One shared model, the average of the clients' local models.

    McMahan et al., AISTATS 2017, https://arxiv.org/abs/1602.05629
    """
    return chain(average(), name="fedavg")


def fedavg_lu(epochs: float = 1, lr_scale: float = 1.0) -> Method:
    """FedAvg, then every client fine-tunes the final model on its own training data.

    Wang et al. 2019, https://arxiv.org/abs/1910.10252; baseline of SuPerFed.

    Args:
        epochs: of fine-tuning, >= 0 (no paper gives the number; 1, 5 and 10 are usual).
        lr_scale: of the scene's learning rate.
    """
    return chain(average(), fine_tune(epochs, lr_scale), name="fedavg_lu")
