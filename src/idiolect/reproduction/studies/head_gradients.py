"""The head's gradients, summed over a client's local work.

G = sum_s grad_w l(B_s; theta_s)     w the weight of the head, [K, d]
Li et al., IEEE TKDE 2024 (MAP), figure 6: "the gradient is accumulated across this training epoch"
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from idiolect.core import UPLOAD, Batch, GradientFunction, Initial, Part, Results, Tree, View

__all__ = ["gradient_sum", "head_gradients"]

NAME = "head_gradients"


def head_gradients() -> Part:
    """Watches the gradients and changes nothing; the sum of a round is the client's private slot after it."""

    def init_client(initial: Initial) -> Tree:
        return {"sum": torch.zeros_like(initial.params[initial.structure.classifier])}

    def carry(params: Tree, view: View) -> Tree:
        return {"sum": torch.zeros_like(params["model"][view.task.structure.classifier])}

    def gradient(inner: GradientFunction, view: View) -> Callable[..., tuple[Tree, Tree, Tree]]:
        head = view.task.structure.classifier

        def watched(
            params: Tree, buffers: Tree, batches: tuple[Batch, ...], carry: Tree
        ) -> tuple[Tree, Tree, Tree]:
            grads, new = inner(params, buffers, batches)
            return grads, new, {"sum": carry["sum"] + grads["model"][head]}

        return watched

    def finish(results: Results, view: View) -> Tree:
        return results[UPLOAD].carry[NAME]

    return Part(NAME, init_client=init_client, carry=carry, gradient=gradient, finish=finish)


def gradient_sum(private: Tree) -> Tensor:
    """G of the client's last round, [K, d], from its private state."""
    found: Tensor = private["slots"][NAME]["sum"]
    return found
