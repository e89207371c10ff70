"""FedProto: federated prototype learning."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, class_prototypes, private_layers

__all__ = ["fedproto"]


def fedproto(weight: float = 1.0, reduction: str = "mean") -> Method:
    """Every client keeps its whole model; only the mean feature of each class is shared.

    Tan et al., AAAI 2022, https://arxiv.org/abs/2105.00243

    Args:
        weight: lambda >= 0 of the distance to the shared prototypes.
        reduction: over the dimensions of a feature, ``mean`` or ``sum``.
    """
    whole = private_layers(count=None, head_init="shared")
    return chain(average(), whole, class_prototypes(weight, reduction), name="fedproto")


presets = {"paper": {"weight": 1.0}}
