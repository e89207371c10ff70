"""Plain loops of FedAvg, MAP, PersFL and SuPerFed-MM: torch.nn and torch.optim.SGD, one client after the other.

They use neither the engines nor the core: they are what anybody would write first, and every row of the bench is
compared with them.  Batches and cohorts are looked up before the clock starts, so that shuffling costs them nothing.
Options are chosen so that a method does the same work in every round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from idiolect.bench.native_network import fill, native
from idiolect.bench.plain_loop_batches import PlainBatch, PlainBatches
from idiolect.bench.workloads import LEARNING_RATE, MOMENTUM, N_CLASSES
from idiolect.errors import unknown_name
from idiolect.experiments import Setting
from idiolect.methods.catalogue import identifier
from idiolect.models import build

__all__ = ["PlainLoop", "PlainMap", "PlainMethod", "PlainPersFL", "PlainSuPerFed", "names", "plain_method"]

StateDict = dict[str, Tensor]
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def cross_entropy(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(net(x), y)


def copied(net: nn.Module) -> StateDict:
    return {name: value.clone() for name, value in net.state_dict().items()}


class PlainLoop:
    """FedAvg; the plain loops of the other methods override what differs.

    Args:
        setting: only its data and its initial model are read.

    Attributes:
        shared: the model on the server.
        net: the module in which the clients train, one after the other.
        nets: every module that makes forward passes.
    """

    def __init__(self, setting: Setting) -> None:
        self.x, self.y = setting.work.x, setting.work.y
        self.initial = setting.initial(0)
        self.nets: list[nn.Module] = []
        self.net = self.new_net(setting)
        self.shared = copied(self.net)

    def new_net(self, setting: Setting) -> nn.Module:
        """Returns a new module that holds the initial model."""
        channels, height, width = self.x.shape[1:]
        net = native(build(setting.experiment.model, (channels, height, width), N_CLASSES)).to(self.x)
        fill(net, [*self.initial.params.values(), *self.initial.buffers.values()])
        self.nets.append(net)
        return net

    def round(self, batches: PlainBatches) -> None:
        """Makes one round of the cohort."""
        total = {name: torch.zeros_like(value) for name, value in self.shared.items()}
        for client, stages in batches.items():
            self.net.load_state_dict(self.shared)
            self.client(client, stages, total)
        self.shared = {name: value / len(batches) for name, value in total.items()}

    def client(self, client: int, stages: dict[str, list[PlainBatch]], total: StateDict) -> None:
        """Trains one client from the shared model, which ``net`` holds, and adds its upload to ``total``."""
        self.train(stages["main"], cross_entropy)
        self.upload(total)

    def end(self, batches: PlainBatches) -> None:
        """Does the work of every client at the end of the run; FedAvg has none."""

    def train(self, batches: list[PlainBatch], loss: Loss) -> None:
        """Trains ``net`` in place with a fresh optimiser."""
        self.net.train()
        optimiser = torch.optim.SGD(self.net.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        for rows, _ in batches:
            optimiser.zero_grad()
            loss(self.net, self.x[rows], self.y[rows]).backward()
            optimiser.step()

    def upload(self, total: StateDict) -> None:
        with torch.no_grad():
            for name, value in self.net.state_dict().items():
                total[name] += value


def distilled(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Returns tau^2 KL(sigma(teacher / tau) || sigma(student / tau)), averaged over rows."""
    log_student, log_teacher = (F.log_softmax(z / temperature, 1) for z in (student, teacher))
    return temperature**2 * F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True)


class PlainMap(PlainLoop):
    """MAP: restricted softmax, upload, then distillation from the client's inherited model.

    ``hpm_init=theta0`` gives every client a teacher from the start, so that each private step makes the same two
    forward passes in every round.
    """

    METHOD = "map(hpm_init=theta0)"
    ALPHA, WEIGHT, TEMPERATURE, MU = 0.9, 0.01, 4.0, 0.9

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        missing = torch.from_numpy(setting.federation.class_counts() == 0).to(self.x)
        self.scales = 1 - (1 - self.ALPHA) * missing  # [clients, classes]
        self.teacher = self.new_net(setting).eval()
        self.inherited: dict[int, StateDict] = {}
        self.seen: dict[int, int] = {}
        self.first = copied(self.net)
        self.selections = setting.experiment.participation_rate * setting.experiment.rounds

    def client(self, client: int, stages: dict[str, list[PlainBatch]], total: StateDict) -> None:
        scale = self.scales[client]
        self.train(stages["main"], lambda net, x, y: F.cross_entropy(net(x) * scale, y))
        self.upload(total)
        old = self.inherited.get(client, self.first)
        self.teacher.load_state_dict(old)
        self.train(stages["private"], self.taught)
        mu = min(self.MU * self.seen.get(client, 0) / self.selections, 1.0)
        with torch.no_grad():
            self.inherited[client] = {
                name: (1 - mu) * value + mu * old[name] for name, value in self.net.state_dict().items()
            }
        self.seen[client] = self.seen.get(client, 0) + 1

    def taught(self, net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.teacher(x)
        logits = net(x)
        soft = distilled(logits, wanted, self.TEMPERATURE)
        return (1 - self.WEIGHT) * F.cross_entropy(logits, y) + self.WEIGHT * soft


class PlainPersFL(PlainLoop):
    """PersFL: every client scores each new model of FedAvg; at the end it distils from its best one.

    The grid has one point and the distillation one epoch; a longer grid repeats the same work.
    """

    METHOD = "persfl(lambdas=(0.5,), temperatures=(5.0,), epochs=1)"
    LAMBDA, TEMPERATURE = 0.5, 5.0
    SCORE, DISTIL, VALID = "score", "distil 0.5 5", "valid distil 0.5 5"  # names of the stages in the plan

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.teacher = self.new_net(setting).eval()
        self.best: dict[int, float] = {}
        self.teachers: dict[int, StateDict] = {}
        self.students: dict[int, StateDict] = {}

    def round(self, batches: PlainBatches) -> None:
        super().round({client: stages for client, stages in batches.items() if "main" in stages})
        self.net.load_state_dict(self.shared)
        for client, stages in batches.items():
            loss, _ = self.scored(stages[self.SCORE])
            if loss < self.best.get(client, float("inf")):
                self.best[client], self.teachers[client] = loss, self.shared

    def end(self, batches: PlainBatches) -> None:
        for client, stages in batches.items():
            self.teacher.load_state_dict(self.teachers[client])
            self.net.load_state_dict(self.teachers[client])
            self.train(stages[self.DISTIL], self.taught)
            self.scored(stages[self.VALID])
            self.students[client] = copied(self.net)

    def taught(self, net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = self.teacher(x)
        logits = net(x)
        soft = distilled(logits, wanted, self.TEMPERATURE)
        return (1 - self.LAMBDA) * F.cross_entropy(logits, y) + self.LAMBDA * soft

    def scored(self, batches: list[PlainBatch]) -> tuple[float, float]:
        """Returns the mean loss and the accuracy of ``net`` on validation rows."""
        self.net.eval()
        loss = hits = rows_read = 0.0
        with torch.no_grad():
            for rows, _ in batches:
                logits, y = self.net(self.x[rows]), self.y[rows]
                loss += F.cross_entropy(logits, y, reduction="sum").item()
                hits += (logits.argmax(1) == y).sum().item()
                rows_read += len(rows)
        return loss / rows_read, hits / rows_read


class PlainSuPerFed(PlainLoop):
    """SuPerFed-MM: a shared and a private model, trained at a random point between them.

    With ``phase_one=0`` both models train from the first round on.
    """

    METHOD = "superfed_mm(phase_one=0)"
    PART = "mixed_subspace"  # its draws are the mixing coefficients
    BETA, GAMMA = 2.0, 0.01

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.names = [name for name, _ in self.net.named_parameters()]
        self.first = list(self.initial.draw(self.PART, False).params.values())
        self.own: dict[int, list[Tensor]] = {}

    def client(self, client: int, stages: dict[str, list[PlainBatch]], total: StateDict) -> None:
        self.net.train()
        shared = list(self.net.parameters())
        own = [p.clone().requires_grad_() for p in self.own.get(client, self.first)]
        received = [p.detach().clone() for p in shared]
        optimiser = torch.optim.SGD([*shared, *own], lr=LEARNING_RATE, momentum=MOMENTUM)
        for rows, draws in stages["main"]:
            alpha = draws[self.PART][0]
            optimiser.zero_grad()
            mixed = [(1 - alpha) * s + alpha * o for s, o in zip(shared, own, strict=True)]
            logits = functional_call(self.net, dict(zip(self.names, mixed, strict=True)), (self.x[rows],))
            moved = [s - r for s, r in zip(shared, received, strict=True)]
            cosine = inner(shared, own) ** 2 / (inner(shared, shared) * inner(own, own))
            loss = (
                F.cross_entropy(logits, self.y[rows]) + self.GAMMA * inner(moved, moved) + self.BETA * cosine
            )
            loss.backward()
            optimiser.step()
        self.upload(total)
        self.own[client] = [p.detach() for p in own]


def inner(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    return torch.stack([(p * q).sum() for p, q in zip(a, b, strict=True)]).sum()


class PlainMethod(NamedTuple):
    """A method that the bench can time.

    Args:
        text: the method as the library spells it.
        plain: its plain loop.
        phases: what is timed: ``round``, and ``end`` if the method also works after the last round.
    """

    text: str
    plain: type[PlainLoop]
    phases: tuple[str, ...] = ("round",)


_METHODS = {
    "fedavg": PlainMethod("fedavg", PlainLoop),
    "map": PlainMethod(PlainMap.METHOD, PlainMap),
    "persfl": PlainMethod(PlainPersFL.METHOD, PlainPersFL, ("round", "end")),
    "superfed_mm": PlainMethod(PlainSuPerFed.METHOD, PlainSuPerFed),
}


def names() -> list[str]:
    return list(_METHODS)


def plain_method(name: str) -> PlainMethod:
    known = identifier(name)
    if known not in _METHODS:
        raise unknown_name("method to bench", name, _METHODS)
    return _METHODS[known]
