"""FedAS: bridging inconsistency in personalised federated learning."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import feature_alignment, informed_average, private_layers

__all__ = ["fedas"]


def fedas(
    count: int = 1, align_epochs: float = 1, align_lr_scale: float = 1.0, head_init: str = "shared"
) -> Method:
    """A shared body and private heads; a client first aligns the received body with its own features.

    The server weighs the bodies by the information that the clients' data still hold for them.

    Yang, Huang, Ye, CVPR 2024, "FedAS: Bridging Inconsistency in Personalized Federated Learning"

    Args:
        count: units >= 0 of the private head, counted from the output.
        align_epochs: >= 0 of the alignment before local training.
        align_lr_scale: >= 0, of the alignment, times the scene's learning rate.
        head_init: ``shared`` or ``random``.
    """
    kept = private_layers(count, head_init)
    return chain(
        informed_average(), kept, feature_alignment(align_epochs, align_lr_scale, count), name="fedas"
    )
