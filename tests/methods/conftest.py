"""A small ragged federation, runs on it whose every state is kept, and plain torch to check them against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from idiolect.core import Initial, Method, Model, broadcast, derive
from idiolect.engines import EngineChoice, choose_engine, make_task, place, structure_of
from idiolect.experiments import Experiment
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting, prepare
from idiolect.federation import Federation, plan_batches, select
from idiolect.federation.splits import ClientRows
from idiolect.methods import method as read_method
from idiolect.models import Convolution, Net, Unit, initialise, stack

SHAPE, CLASSES = (1, 4, 4), 4
TRAIN_SIZES = (9, 4, 13, 6, 7)
HELD = ((0, 1), (1, 2, 3), (0, 3), (2,), (0, 1, 2, 3))  # classes of each client


def _stack(**layers: Any) -> Net:
    return stack(image_shape=SHAPE, n_classes=CLASSES, **layers)


NETS: dict[str, Callable[[], Net]] = {
    "mlp": lambda: _stack(hidden=(5, 5), head_bias=False),
    "bn": lambda: _stack(convolutions=(Convolution(3, 3, padding=1, pool=2, normalised=True),), hidden=(5,)),
    "dropout": lambda: _stack(
        convolutions=(Convolution(3, 3, padding=1, pool=2),), hidden=(5, 5), dropout=0.5
    ),
    "one layer": lambda: Net([Unit(flatten=nn.Flatten(), linear=nn.Linear(16, CLASSES))]),
}


@cache
def _base() -> Setting:
    """What the library itself prepares; runs replace its data, its network and its method."""
    data = "synthetic(n_clients=2, samples_per_client=10, n_classes=4, n_features=4)"
    experiment = Experiment(dataset=data, partition="by_id", clients=2, model="mlpnet(hidden=5)")
    return prepare(experiment, place("loop", "cpu"))


def _initial(make: Callable[[], Net], seed: int, like: Tensor) -> Callable[[int], Initial]:
    """client -> theta_0 and further initialisations, of a network made here instead of looked up."""

    def drawn(*position: str | int) -> Model:
        net = make()
        initialise(net, "default", derive(seed, "initialisation", *position))
        params = {k: v.detach().to(like) for k, v in net.named_parameters()}
        return Model(params, {k: v.to(like) for k, v in net.named_buffers()})

    def initial(client: int) -> Initial:
        def draw(purpose: str, own: bool) -> Model:
            return drawn(purpose, client) if own else drawn(purpose)

        def spread(purpose: str, shape: tuple[int, ...]) -> Tensor:
            generator = torch.Generator().manual_seed(derive(seed, "spread", purpose))
            return (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1).to(like)

        return Initial(*drawn("shared"), draw=draw, structure=structure_of(make()), spread=spread)

    return initial


@dataclass
class Trace:
    """Every state of a run: ``servers[t]`` and ``privates[t][client]`` are those after t rounds."""

    simulation: Simulation
    servers: list[dict[str, Any]]
    privates: list[dict[int, Any]]
    end: dict[int, Any]  # private states after the stages of the end of the run

    @property
    def params(self) -> list[dict[str, Tensor]]:
        return [server["params"] for server in self.servers]

    def slot(self, part: str, client: int, round: int) -> Any:
        return self.privates[round][client]["slots"][part]

    def logits(self, split: str = "test") -> list[dict[str, Tensor]]:
        """Of every predictor on every client, at the end."""
        simulation = self.simulation
        program = simulation.setting.program(simulation.round)
        everyone = list(range(simulation.setting.federation.population))
        sent = simulation.participants.downloads.for_follow_up(program, simulation.server, everyone)
        privates = sent.with_own(simulation.store.rows(everyone))
        return simulation.engine.evaluate(program, sent.shared, privates, split)


class Lab:
    """Makes federations and runs methods on them."""

    classes = CLASSES

    def federation(
        self, sizes: Sequence[int] = TRAIN_SIZES, held: Sequence[Sequence[int]] = HELD, held_out: int = 5
    ) -> Federation:
        random = np.random.default_rng(7)
        total = [n + 2 * held_out for n in sizes]
        parts = [(h, n) for size, h in zip(sizes, held, strict=False) for n in (2 * held_out, size)]
        y = np.concatenate([random.permutation(np.resize(h, n)) for h, n in parts])
        x = random.standard_normal((len(y), *SHAPE)) + 0.5 * y[:, None, None, None]
        starts = np.cumsum([0, *total])
        rows = [np.arange(a, b) for a, b in pairwise(starts)]
        clients = [ClientRows(r[2 * held_out :], r[:held_out], r[held_out : 2 * held_out]) for r in rows]
        return replace(
            _base().federation,
            x=x,
            y=y,
            server_x=x[:6],
            server_y=y[:6],
            n_classes=CLASSES,
            clients=tuple(clients),
        )

    def start(
        self,
        method: str | Method,
        *,
        net: str = "mlp",
        engine: str = "loop",
        federation: Federation | None = None,
        **settings: Any,
    ) -> Simulation:
        federation = federation or self.federation()
        defaults = {
            "rounds": 3,
            "participation_rate": 1.0,
            "local_epochs": 1,
            "batch_size": 4,
            "learning_rate": 0.125,
            "precision": "float64",
        }
        experiment = Experiment(**{**defaults, **settings})
        experiment = replace(experiment, evaluate_every=experiment.rounds)
        make, base = NETS[net], _base()
        like = torch.ones((), dtype=getattr(torch, experiment.precision))
        work = replace(
            base.work,
            federation=federation,
            x=torch.from_numpy(federation.x).to(like),
            y=torch.from_numpy(federation.y),
            seed=experiment.seed,
            drop_single=make().has_batchnorm,
            weighting=experiment.weighting,
            like=like,
        )
        setting = replace(
            base,
            experiment=experiment,
            method=method if isinstance(method, Method) else read_method(method),
            federation=federation,
            work=work,
            task=make_task(make()),
            initial=_initial(make, experiment.seed, work.x),
        )
        return Simulation.start(setting, choose_engine(EngineChoice(engine, "cpu", "as asked"), work))

    def run(self, method: str | Method, **settings: Any) -> Trace:
        simulation = self.start(method, **settings)
        everyone = range(simulation.setting.federation.population)
        servers, privates = [simulation.server], [simulation.store.rows(everyone)]
        for _ in range(simulation.setting.experiment.rounds):
            simulation.advance()
            servers.append(simulation.server)
            privates.append(simulation.store.rows(everyone))
        simulation.finish()
        return Trace(simulation, servers, privates, simulation.store.rows(everyone))

    def after_local(self, trace: Trace) -> list[dict[str, Tensor]]:
        """Logits of every predictor on every client's test split, after one more local round, before any merge."""
        simulation = trace.simulation
        setting, everyone = simulation.setting, trace.privates[-1]
        sent = broadcast(setting.method, trace.servers[-1])
        outcomes = simulation.engine.round(setting.program(simulation.round), sent, everyone, True)
        return [outcome.after for outcome in outcomes]

    def same(self, a: Any, b: Any) -> None:
        """Bit for bit."""
        torch.testing.assert_close(a, b, rtol=0, atol=0)

    def close(self, a: Any, b: Any, rtol: float = 1e-9) -> None:
        torch.testing.assert_close(a, b, rtol=rtol, atol=1e-3 * rtol)

    def differ(self, a: Any, b: Any) -> bool:
        try:
            self.close(a, b, rtol=1e-6)
        except AssertionError:
            return True
        return False


class Plain:
    """The network ``mlp``, its losses and SGD written out in torch alone; batches are the federation's data."""

    def __init__(self, trace: Trace) -> None:
        setting = trace.simulation.setting
        self.experiment, self.federation = setting.experiment, setting.federation
        self.x = torch.from_numpy(self.federation.x)
        self.y = torch.from_numpy(self.federation.y)

    def forward(self, w: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        """(features, logits)"""
        h = x.flatten(1)
        for unit in (0, 1):
            h = torch.relu(h @ w[f"units.{unit}.linear.weight"].T + w[f"units.{unit}.linear.bias"])
        return h, h @ w["units.2.linear.weight"].T

    def cross_entropy(self, w: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.forward(w, x)[1], y)

    def steps(self, client: int, epochs: float) -> int:
        per_epoch = -(-len(self.federation.clients[client].train) // self.experiment.batch_size)
        return int(np.ceil(epochs * per_epoch - 1e-9))

    def batches(
        self, client: int, round: int, steps: int, stream: str = "main"
    ) -> Iterator[tuple[Tensor, Tensor]]:
        plan = plan_batches(
            self.federation.clients[client].train,
            steps,
            self.experiment.batch_size,
            seed=self.experiment.seed,
            position=(stream, round, client),
        )
        for index, mask in zip(plan.index, plan.mask, strict=True):
            rows = torch.from_numpy(index[mask])
            yield self.x[rows], self.y[rows]

    def rows(self, client: int, split: str) -> tuple[Tensor, Tensor]:
        rows = torch.from_numpy(getattr(self.federation.clients[client], split))
        return self.x[rows], self.y[rows]

    def counts(self, client: int) -> Tensor:
        return torch.bincount(self.rows(client, "train")[1], minlength=CLASSES).double()

    def sgd(
        self,
        w: dict[str, Tensor],
        batches: Iterator[tuple[Tensor, Tensor]],
        loss: Callable[..., Tensor],
        lr_scale: float = 1.0,
        trained: Callable[[str], bool] = lambda name: True,
    ) -> dict[str, Tensor]:
        """Heavy-ball SGD: g <- g min(1, clip / |g|) + decay w;  v <- momentum v + g;  w <- w - lr v."""
        e = self.experiment
        names = [name for name in w if trained(name)]
        velocity = {name: torch.zeros_like(w[name]) for name in names}
        for x, y in batches:
            leaves = {name: w[name].clone().requires_grad_(name in names) for name in w}
            grads = torch.autograd.grad(loss(leaves, x, y), [leaves[name] for name in names])
            if e.clip_norm is not None:
                norm = torch.sqrt(sum((grad**2).sum() for grad in grads))
                grads = [grad * min(1.0, e.clip_norm / (norm + 1e-6)) for grad in grads]  # as torch clips
            for name, grad in zip(names, grads, strict=True):
                velocity[name] = e.momentum * velocity[name] + grad + e.weight_decay * w[name]
            w = w | {name: w[name] - e.learning_rate * lr_scale * velocity[name] for name in names}
        return w

    def federated(
        self, w: dict[str, Tensor], local: Callable[[dict[str, Tensor], int, int], dict[str, Tensor]]
    ) -> list[dict[str, Tensor]]:
        """The path of the mean of what ``local(w, client, round)`` uploads."""
        path = [w]
        e = self.experiment
        for t in range(e.rounds):
            cohort = select(e.participation_rate, len(self.federation.clients), seed=e.seed, round=t)
            sizes = [len(self.federation.clients[k].train) if e.weighting == "samples" else 1 for k in cohort]
            uploads = [local(path[-1], k, t) for k in cohort]
            path.append(
                {
                    name: sum(n * upload[name] for n, upload in zip(sizes, uploads, strict=True)) / sum(sizes)
                    for name in uploads[0]
                }
            )
        return path


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Lab()
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def planted(lab: Lab) -> Callable[[Sequence[int]], Federation]:
    """Makes a federation whose clients with a 1 among ``groups`` have other labels for the same inputs."""

    def federation(groups: Sequence[int]) -> Federation:
        alike = lab.federation([24] * len(groups), [range(CLASSES)] * len(groups), held_out=8)
        y = alike.y.copy()
        for group, client in zip(groups, alike.clients, strict=True):
            rows = np.concatenate(client)
            y[rows] = (y[rows] + 2 * group) % CLASSES
        return replace(alike, y=y)

    return federation


@pytest.fixture(scope="session")
def plain() -> Callable[[Trace], Plain]:
    return Plain
