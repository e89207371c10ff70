"""MOON: model-contrastive federated learning."""

from __future__ import annotations

from typing import Any

from idiolect.core import Method, chain
from idiolect.parts import average, contrastive

__all__ = ["moon"]


def moon(weight: float = 1.0, temperature: float = 0.5, previous_init: str = "received") -> Method:
    """FedAvg whose features are pulled to the shared model's and pushed away from those of the client's last model.

    Li, He, Song, CVPR 2021, https://arxiv.org/abs/2103.16257

    Args:
        weight: mu >= 0; 5, 1 and 0.1 on the paper's CIFAR-10, CIFAR-100 and TinyImageNet.
        temperature: tau > 0.
        previous_init: ``received`` or ``theta0``.
    """
    return chain(average(), contrastive(weight, temperature, previous_init), name="moon")


presets: dict[str, dict[str, Any]] = {
    "paper": {"weight": 5.0, "temperature": 0.5},
    "official": {"previous_init": "theta0"},
}
