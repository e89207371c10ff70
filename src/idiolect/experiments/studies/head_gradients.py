"""The head's gradients, summed over a client's local work.

G = sum_s grad_w l(B_s; theta_s)     w the weight of the head, [K, d]
Li et al., IEEE TKDE 2024 (MAP), figure 6: "the gradient is accumulated across this training epoch"
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    CarryingGradient,
    Flats,
    GradientFunction,
    Initial,
    Part,
    PrivateState,
    Results,
    Slot,
    View,
)

__all__ = ["gradient_sum", "head_gradients"]

NAME = "head_gradients"


def head_gradients() -> Part:
    """Watches the gradients and changes nothing; the sum of a round is the client's private slot after it."""

    def init_client(initial: Initial) -> Slot:
        return {"sum": torch.zeros_like(initial.params[initial.structure.classifier])}

    def carry(params: Flats, view: View) -> Slot:
        return {"sum": torch.zeros_like(params["model"][view.task.structure.classifier])}

    def gradient(inner: GradientFunction, view: View) -> CarryingGradient:
        head = view.task.structure.classifier

        def watched(
            params: Flats, buffers: Flats, batches: tuple[Batch, ...], carry: Slot
        ) -> tuple[Flats, Flats, Slot]:
            grads, new = inner(params, buffers, batches)
            return grads, new, {"sum": carry["sum"] + grads["model"][head]}

        return watched

    def finish(results: Results, view: View) -> Slot:
        return results[UPLOAD].carry[NAME]

    return Part(NAME, init_client=init_client, carry=carry, gradient=gradient, finish=finish)


def gradient_sum(private: PrivateState) -> Tensor:
    """G of the client's last round, [K, d], from its private state."""
    found: Tensor = private["slots"][NAME]["sum"]
    return found
