"""Trains the network of a study and records it like a run: its head is observed after every epoch.

The study is a federation of one client, which holds the training samples of the observed classes; a round is an epoch.

Deviations: momentum starts anew with each epoch, as with every round of the library; the paper does not say.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Clock,
    GradientFunction,
    Initial,
    Part,
    Program,
    Results,
    Scene,
    Task,
    Tree,
    View,
    broadcast,
    chain,
    init_private,
    init_server,
    server_round,
)
from idiolect.core.trees import stack
from idiolect.data import Dataset, load
from idiolect.engines import LoopEngine, Workload, initialiser, make_task
from idiolect.engines.packing import SINGLE
from idiolect.engines.precision import PRECISIONS
from idiolect.evaluation import accumulated_gradient_norms
from idiolect.experiments.execution import Execution
from idiolect.experiments.progress import Watcher
from idiolect.federation import federate
from idiolect.models import build
from idiolect.partition import Partition
from idiolect.parts import average
from idiolect.records import (
    RoundBuffer,
    RowBuffer,
    Run,
    RunWriter,
    finished,
    finished_folder,
    read_run,
    run_name,
    spec_hash,
)
from idiolect.reproduction.studies.head_observations import observe_epoch, observe_features
from idiolect.reproduction.studies.study import Study

__all__ = ["Epoch", "StudyFederation", "run_study"]

KIND = "study"
CLIENT = 0  # the only one
HEAD_GRADIENTS = "head_gradients"


def run_study(study: Study, execution: Execution) -> Run:
    """Trains and records a study and returns the record; a finished study is read instead."""
    spec = dataclasses.asdict(study)
    del spec["seed"]
    name = run_name(f"{KIND}-{study.observed}-classes", study.dataset, "", spec_hash(spec), study.seed)
    out, watcher = execution.out, execution.watcher
    if finished(out, name):
        watcher.say(f"{name} is finished already: read, not run again")
        return read_run(finished_folder(out, name))
    data = load(study.dataset, execution.data_dir)
    manifest = {
        **{"method": KIND, "kind": KIND, "label": name, "seed": study.seed, "headline": "head"},
        **{"dataset": study.dataset, "model": study.model, "spec": dataclasses.asdict(study)},
        **{"spec_hash": spec_hash(spec), "source": dict(data.manifest), "notes": []},
    }
    rows, rounds = RowBuffer(), RoundBuffer()
    with RunWriter(out, name, manifest) as writer:
        watcher.begin(name, study.epochs, 0)
        try:
            _train(StudyFederation.of(study, data, execution.engine_choice().device), rows, rounds, watcher)
        finally:
            watcher.end()
        return read_run(writer.finish(rounds.table(), rows.table()))


def _train(federation: StudyFederation, rows: RowBuffer, rounds: RoundBuffer, watcher: Watcher) -> None:
    """Trains epoch by epoch and adds what is observed to the buffers."""
    study, now = federation.study, federation.start()
    for epoch in range(1, study.epochs + 1):
        began = time.perf_counter()
        now = federation.advance(epoch - 1, now)
        norms = accumulated_gradient_norms([now.gradients])
        features, logits = federation.tested(now)
        observe_epoch(rows, epoch, study, federation.head(now), norms, logits, federation.test_y)
        rounds.add(epoch, time.perf_counter() - began, 1, 0, 0, now.loss)
        watcher.advance(epoch, {"loss": now.loss})
    if federation.task.structure.n_features == 2:
        observe_features(rows, study, federation.head(now), features, federation.test_y)


class Epoch(NamedTuple):
    """The state after an epoch.

    Args:
        gradients: gradients of the head's weight, [K, d], summed over the steps of the epoch.
    """

    server: Tree
    private: Tree
    loss: float
    gradients: Tensor


@dataclass(frozen=True)
class StudyFederation:
    """A study as a federation of one client.

    Args:
        work: the client's samples; the official test samples are the server's.
        test_x, test_y: the test samples, beside those of the workload.
    """

    study: Study
    work: Workload
    task: Task
    initial: Initial
    test_x: Tensor
    test_y: Tensor

    @classmethod
    def of(cls, study: Study, data: Dataset, device: str) -> StudyFederation:
        """Places the samples of a study and builds its network."""
        observed = data.train_y < study.observed
        held, others = np.flatnonzero(observed), np.flatnonzero(~observed)
        parted = Partition((held,), {"missing classes": others})
        federation = federate(data, parted, valid=0, test=0, seed=study.seed)
        net = build(study.model, data.shape, data.n_classes)
        work = Workload.place(
            federation,
            seed=study.seed,
            drop_single=net.has_batchnorm,
            weighting="uniform",
            precision=PRECISIONS["float32"],
            device=device,
        )
        initial = initialiser(study.model, data.shape, data.n_classes, "default", study.seed, work.like)
        test_x = torch.from_numpy(federation.server_x).to(work.x)
        test_y = torch.from_numpy(federation.server_y).to(work.y)
        return cls(study, work, make_task(net), initial(CLIENT), test_x, test_y)

    def program(self, epoch: int) -> Program:
        """Returns the training of an epoch, counted from 0."""
        study = self.study
        scene = Scene(1, study.batch_size, study.learning_rate, study.momentum, study.weight_decay)
        clock = Clock(epoch, study.epochs, 1.0, 1, 1, study.learning_rate)
        return Program(METHOD, self.task, scene, clock, SINGLE.differentiate)

    def start(self) -> Epoch:
        """Returns the state before the first epoch."""
        structure = self.task.structure
        private = init_private(METHOD, self.initial, structure, Scene().buffers)
        server = init_server(METHOD, self.initial, structure)
        return Epoch(server, private, float("nan"), _gradient_sum(private))

    def advance(self, epoch: int, before: Epoch) -> Epoch:
        """Returns the state after one round of the client and the server."""
        program = self.program(epoch)
        sent = broadcast(METHOD, before.server)
        (outcome,) = LoopEngine(self.work).round(program, sent, {CLIENT: before.private}, observe=False)
        server = server_round(METHOD, before.server, stack([outcome.messages]), program.clock)
        return Epoch(server, outcome.private, float(outcome.loss), _gradient_sum(outcome.private))

    def head(self, after: Epoch) -> Tensor:
        """Returns the rows of the head, [K, d]."""
        weight: Tensor = after.server["params"][self.task.structure.classifier]
        return weight

    @torch.no_grad()
    def tested(self, after: Epoch, at_once: int = 512) -> tuple[Tensor, Tensor]:
        """Returns the features and logits of all test samples."""
        params, buffers = after.server["params"], after.server["buffers"]
        found = []
        for x, y in zip(torch.split(self.test_x, at_once), torch.split(self.test_y, at_once), strict=True):
            batch = Batch(x, y, torch.ones_like(y, dtype=self.work.like.dtype), torch.zeros_like(y), {})
            found.append(self.task.forward(params, buffers, batch, False)[0])
        return torch.cat([out.features for out in found]), torch.cat([out.logits for out in found])


def _head_gradients() -> Part:
    """Sums up the head's gradients over a client's local work, and changes nothing.

    G = sum_s grad_w l(B_s; theta_s)     w the weight of the head, [K, d]
    Li et al., IEEE TKDE 2024 (MAP), figure 6: "the gradient is accumulated across this training epoch"

    The sum of a round is the client's private slot after it.
    """

    def init_client(initial: Initial) -> Tree:
        return {"sum": torch.zeros_like(initial.params[initial.structure.classifier])}

    def carry(params: Tree, view: View) -> Tree:
        return {"sum": torch.zeros_like(params["model"][view.task.structure.classifier])}

    def gradient(inner: GradientFunction, view: View) -> Callable[..., tuple[Tree, Tree, Tree]]:
        head = view.task.structure.classifier

        def summing(
            params: Tree, buffers: Tree, batches: tuple[Batch, ...], carry: Tree
        ) -> tuple[Tree, Tree, Tree]:
            grads, new = inner(params, buffers, batches)
            return grads, new, {"sum": carry["sum"] + grads["model"][head]}

        return summing

    def finish(results: Results, view: View) -> Tree:
        return results[UPLOAD].carry[HEAD_GRADIENTS]

    return Part(HEAD_GRADIENTS, init_client=init_client, carry=carry, gradient=gradient, finish=finish)


def _gradient_sum(private: Tree) -> Tensor:
    """Returns G of the client's last round, [K, d], from its private state."""
    found: Tensor = private["slots"][HEAD_GRADIENTS]["sum"]
    return found


METHOD = chain(average(), _head_gradients(), name="study")
