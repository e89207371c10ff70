"""Received teacher: the shared model as it arrived, kept frozen, guides local training (FedMMD).

min_w  F_k(w) + lambda L(w; theta_t),    L = MMD^2 of the features of both
Yao, Huang, Sun, VCIP 2018 ("two-stream federated learning")
"""

from __future__ import annotations

from torch import Tensor

from idiolect.core import Batch, Flats, Loss, Out, Part, View
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside
from idiolect.parts.transfer import BY_FEATURES, transfer_of

__all__ = ["received_teacher"]


@keeps_options
def received_teacher(
    transfer: str = "mmd", weight: float = 0.1, temperature: float = 4.0, kd_form: str = "kl"
) -> Part:
    """Adds a transfer term from the received model to the local objective.

    Args:
        transfer: ``mmd`` (the paper), ``kd``, ``l2`` or ``prox``.
        weight: lambda >= 0; 0.1 in the paper.
        temperature, kd_form: of ``kd``.

    Deviations: the MMD estimator is the one of FedPHP and MAP (five kernels, bandwidth from the batch).  With private
    layers the teacher includes the client's own, and ``prox`` covers the shared parameters only.
    """
    refuse_outside("weight (lambda)", weight, 0)
    term = transfer_of(transfer, temperature, kd_form)

    def loss(inner: Loss, view: View) -> Loss:
        teacher = view.origin if transfer == "prox" else view.received

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            return inner(params, batch, out) + weight * term(params["model"], out, batch, teacher, view)

        return total

    return Part(
        "received_teacher",
        loss=loss,
        needs_classes=transfer == "kd",
        needs_head=transfer in BY_FEATURES,
    )
