"""The plain loop: FedAvg written with torch.nn and torch.optim.SGD, one client after the other.

It imports nothing of the engines or the core: what anybody would write first, and what every row is compared with.
Batches and cohorts are looked up before the clock starts, so it pays for no shuffling.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from idiolect.bench.cell import LEARNING_RATE, MOMENTUM, N_CLASSES
from idiolect.bench.lessons import Lesson, Lessons
from idiolect.bench.native import fill, native
from idiolect.experiments import Setting
from idiolect.models import build

__all__ = ["Plain", "State"]

State = dict[str, Tensor]  # what a state_dict holds
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def cross_entropy(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(net(x), y)


def copied(net: nn.Module) -> State:
    return {name: value.clone() for name, value in net.state_dict().items()}


class Plain:
    """Args:
    setting: only its data and its initial model are read.

    Attributes:
        shared: the model on the server.
        net: the module that clients train in, one after the other.
        nets: every module that makes forward passes.
    """

    def __init__(self, setting: Setting) -> None:
        self.x, self.y = setting.work.x, setting.work.y
        self.initial = setting.initial(0)
        self.nets: list[nn.Module] = []
        self.net = self.new_net(setting)
        self.shared = copied(self.net)

    def new_net(self, setting: Setting) -> nn.Module:
        """A module of its own, holding the initial model."""
        image_shape = tuple(self.x.shape[1:])
        net = native(build(setting.experiment.model, image_shape, N_CLASSES)).to(self.x)
        fill(net, [*self.initial.params.values(), *self.initial.buffers.values()])
        self.nets.append(net)
        return net

    def round(self, lessons: Lessons) -> None:
        """One round of the cohort."""
        total = {name: torch.zeros_like(value) for name, value in self.shared.items()}
        for client, stages in lessons.items():
            self.net.load_state_dict(self.shared)
            self.client(client, stages, total)
        self.shared = {name: value / len(lessons) for name, value in total.items()}

    def client(self, client: int, stages: dict[str, list[Lesson]], total: State) -> None:
        """One client's local training, from the shared model in ``net``."""
        self.train(stages["main"], cross_entropy)
        self.upload(total)

    def end(self, lessons: Lessons) -> None:
        """What every client does once the rounds are over; with FedAvg, nothing."""

    def train(self, lessons: list[Lesson], loss: Loss) -> None:
        """Trains ``net`` in place with a fresh optimiser."""
        self.net.train()
        optimiser = torch.optim.SGD(self.net.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        for rows, _ in lessons:
            optimiser.zero_grad()
            loss(self.net, self.x[rows], self.y[rows]).backward()
            optimiser.step()

    def upload(self, total: State) -> None:
        with torch.no_grad():
            for name, value in self.net.state_dict().items():
                total[name] += value
