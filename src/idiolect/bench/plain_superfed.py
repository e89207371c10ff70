"""SuPerFed-MM as a plain loop: two models trained at a random point between them.

The options are ``superfed_mm``'s defaults with ``phase_one=0``, so that both models train from the first round.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from idiolect.bench.cell import LEARNING_RATE, MOMENTUM
from idiolect.bench.lessons import Lesson
from idiolect.bench.plain import Plain, State
from idiolect.experiments import Setting

__all__ = ["METHOD", "PlainSuPerFed"]

METHOD = "superfed_mm(phase_one=0)"
PART = "mixed_subspace"  # whose draws are the mixing coefficients
BETA, GAMMA = 2.0, 0.01


class PlainSuPerFed(Plain):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.names = [name for name, _ in self.net.named_parameters()]
        self.first = list(self.initial.draw(PART, False).params.values())
        self.own: dict[int, list[Tensor]] = {}

    def client(self, client: int, stages: dict[str, list[Lesson]], total: State) -> None:
        self.net.train()
        shared = list(self.net.parameters())
        own = [p.clone().requires_grad_() for p in self.own.get(client, self.first)]
        received = [p.detach().clone() for p in shared]
        optimiser = torch.optim.SGD([*shared, *own], lr=LEARNING_RATE, momentum=MOMENTUM)
        for rows, draws in stages["main"]:
            alpha = draws[PART][0]
            optimiser.zero_grad()
            mixed = [(1 - alpha) * s + alpha * o for s, o in zip(shared, own, strict=True)]
            logits = functional_call(self.net, dict(zip(self.names, mixed, strict=True)), (self.x[rows],))
            moved = [s - r for s, r in zip(shared, received, strict=True)]
            cosine = inner(shared, own) ** 2 / (inner(shared, shared) * inner(own, own))
            loss = F.cross_entropy(logits, self.y[rows]) + GAMMA * inner(moved, moved) + BETA * cosine
            loss.backward()
            optimiser.step()
        self.upload(total)
        self.own[client] = [p.detach() for p in own]


def inner(a: list[Tensor], b: list[Tensor]) -> Tensor:
    return torch.stack([(p * q).sum() for p, q in zip(a, b, strict=True)]).sum()
