"""A study as a federation: one client holds the training samples of the observed classes, a round is an epoch.

Deviations: momentum starts anew with each epoch, as with every round of the library; the paper does not say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from idiolect.core import (
    Batch,
    Clock,
    Initial,
    Program,
    Scene,
    Task,
    Tree,
    broadcast,
    chain,
    init_private,
    init_server,
    server_round,
)
from idiolect.core.trees import stack
from idiolect.data import Dataset
from idiolect.engines import LoopEngine, Workload, initialiser, make_task
from idiolect.engines.packing import SINGLE
from idiolect.engines.precision import PRECISIONS
from idiolect.federation import federate
from idiolect.models import build
from idiolect.partition import Partition
from idiolect.parts import average
from idiolect.reproduction.studies.head_gradients import gradient_sum, head_gradients
from idiolect.reproduction.studies.study import Study

__all__ = ["Epoch", "StudyFederation"]

ONLY = 0  # the client
METHOD = chain(average(), head_gradients(), name="study")


class Epoch(NamedTuple):
    """What an epoch leaves behind.

    Args:
        gradients: of the head's weight, [K, d], summed over the steps of the epoch.
    """

    server: Tree
    private: Tree
    loss: float
    gradients: Tensor


@dataclass(frozen=True)
class StudyFederation:
    """Args:
    work: the client's samples; the official test samples are the server's.
    test_x, test_y: on the device.
    """

    study: Study
    work: Workload
    task: Task
    initial: Initial
    test_x: Tensor
    test_y: Tensor

    @classmethod
    def of(cls, study: Study, data: Dataset, device: str) -> StudyFederation:
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
        return cls(study, work, make_task(net), initial(ONLY), test_x, test_y)

    def program(self, epoch: int) -> Program:
        """The training of an epoch, counted from 0."""
        study = self.study
        scene = Scene(1, study.batch_size, study.learning_rate, study.momentum, study.weight_decay)
        clock = Clock(epoch, study.epochs, 1.0, 1, 1, study.learning_rate)
        return Program(METHOD, self.task, scene, clock, SINGLE.differentiate)

    def start(self) -> Epoch:
        """Before the first epoch."""
        structure = self.task.structure
        private = init_private(METHOD, self.initial, structure, Scene().buffers)
        server = init_server(METHOD, self.initial, structure)
        return Epoch(server, private, float("nan"), gradient_sum(private))

    def advance(self, epoch: int, before: Epoch) -> Epoch:
        """One round of the one client, and the server's part of it."""
        program = self.program(epoch)
        sent = broadcast(METHOD, before.server)
        (outcome,) = LoopEngine(self.work).round(program, sent, {ONLY: before.private}, observe=False)
        server = server_round(METHOD, before.server, stack([outcome.messages]), program.clock)
        return Epoch(server, outcome.private, float(outcome.loss), gradient_sum(outcome.private))

    def head(self, after: Epoch) -> Tensor:
        """The rows of the head, [K, d]."""
        weight: Tensor = after.server["params"][self.task.structure.classifier]
        return weight

    @torch.no_grad()
    def tested(self, after: Epoch, at_once: int = 512) -> tuple[Tensor, Tensor]:
        """Features and logits of all test samples."""
        params, buffers = after.server["params"], after.server["buffers"]
        found = []
        for x, y in zip(self.test_x.split(at_once), self.test_y.split(at_once), strict=True):
            batch = Batch(x, y, torch.ones_like(y, dtype=self.work.like.dtype), torch.zeros_like(y), {})
            found.append(self.task.forward(params, buffers, batch, False)[0])
        return torch.cat([out.features for out in found]), torch.cat([out.logits for out in found])
