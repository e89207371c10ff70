"""Trains the network of a study and records it like a run: its head is observed after every epoch.

The study is a federation of one client, which holds the training samples of the observed classes; a round is an epoch.

Deviations: momentum starts anew with each epoch, as with every round of the library; the paper does not say.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
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
    ServerState,
    Slot,
    View,
    broadcast,
    chain,
    init_private,
    init_server,
    server_round,
)
from idiolect.core.trees import stack
from idiolect.data import Dataset, load
from idiolect.engines import EngineChoice, LoopEngine
from idiolect.evaluation import accumulated_gradient_norms
from idiolect.experiments.execution import Execution
from idiolect.experiments.progress.watcher import Watcher
from idiolect.experiments.setting import Inputs, Setting, assemble
from idiolect.experiments.spec import Experiment
from idiolect.federation import SplitRules, federate
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
from idiolect.reproduction.studies.head_study import Study

__all__ = ["Epoch", "StudyFederation", "run_study"]

KIND = "study"
CLIENT = 0  # the only one
MOST_DRAWS, SEEDS_APART = 30, 1000  # of the first values of a study
LIVE = 0.1  # share of samples on which a feature has to be above zero at first
HEAD_GRADIENTS = "head_gradients"


def run_study(study: Study, execution: Execution) -> Run:
    """Trains and records a study and returns the record; a finished study is read instead."""
    spec = dataclasses.asdict(study)
    del spec["seed"]
    if not study.live_start:
        del spec["live_start"]
    name = run_name(f"{KIND}-{study.observed}-classes", study.dataset, "", spec_hash(spec), study.seed)
    out, watcher = execution.out, execution.watcher
    if finished(out, name):
        watcher.say(f"{name} is finished already: read, not run again")
        return read_run(finished_folder(out, name))
    data = load(study.dataset, execution.data_dir)
    federation, notes = _live(study, data, execution.engine_choice())
    manifest = {
        **{"method": KIND, "kind": KIND, "label": name, "seed": study.seed, "headline": "head"},
        **{"dataset": study.dataset, "model": study.model, "spec": dataclasses.asdict(study)},
        **{"spec_hash": spec_hash(spec), "source": dict(data.manifest), "notes": notes},
    }
    rows, rounds = RowBuffer(), RoundBuffer()
    with RunWriter(out, name, manifest) as writer:
        watcher.begin(name, study.epochs, 0)
        try:
            _train(federation, rows, rounds, watcher)
        finally:
            watcher.end()
        return read_run(writer.finish(rounds.table(), rows.table()))


def _live(study: Study, data: Dataset, engine: EngineChoice) -> tuple[StudyFederation, list[str]]:
    """Returns the study as a federation, and a note where its first values were drawn again."""
    first = StudyFederation.of(study, data, engine)
    if not study.live_start or first.responds():
        return first, []
    for draw in range(1, MOST_DRAWS):
        again = StudyFederation.of(replace(study, seed=study.seed + SEEDS_APART * draw), data, engine)
        if again.responds():
            return again, [
                f"first values drawn {draw + 1} times, until each feature was above zero somewhere"
            ]
    return first, [f"in {MOST_DRAWS} draws of first values, a feature was never above zero"]


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
    if federation.setting.task.structure.n_features == 2:
        observe_features(rows, study, federation.head(now), features, federation.test_y)


class Epoch(NamedTuple):
    """The state after an epoch.

    Args:
        gradients: gradients of the head's weight, [K, d], summed over the steps of the epoch.
    """

    server: ServerState
    private: PrivateState
    loss: float
    gradients: Tensor


@dataclass(frozen=True)
class StudyFederation:
    """A study as a federation of one client.

    Args:
        setting: the client's samples and the network; the official test samples are the server's.
        test_x, test_y: the test samples, beside those of the setting's workload.
    """

    study: Study
    setting: Setting
    test_x: Tensor
    test_y: Tensor

    @classmethod
    def of(cls, study: Study, data: Dataset, engine: EngineChoice) -> StudyFederation:
        """Places the samples of a study and builds its network."""
        observed = data.train_y < study.observed
        held, others = np.flatnonzero(observed), np.flatnonzero(~observed)
        parted = Partition((held,), {"missing classes": others})
        federation = federate(data, parted, SplitRules(valid=0, test=0), seed=study.seed)
        setting = assemble(_training_of(study), engine, federation, Inputs.of(data, federation.preprocessing))
        test_x = torch.from_numpy(federation.server_x).to(setting.work.x)
        test_y = torch.from_numpy(federation.server_y).to(setting.work.y)
        return cls(study, dataclasses.replace(setting, method=METHOD), test_x, test_y)

    def start(self) -> Epoch:
        """Returns the state before the first epoch."""
        setting = self.setting
        initial, structure = setting.initial(CLIENT), setting.task.structure
        private = init_private(METHOD, initial, structure, setting.experiment.buffers)
        server = init_server(METHOD, initial, structure)
        return Epoch(server, private, float("nan"), _gradient_sum(private))

    def responds(self) -> bool:
        """Whether each feature is above zero on enough samples of the observed classes before training."""
        features, _ = self.tested(self.start())
        above = features[self.test_y < self.study.observed] > 0
        return bool((above.double().mean(0) >= LIVE).all())

    def advance(self, epoch: int, before: Epoch) -> Epoch:
        """Returns the state after one round of the client and the server; epochs are counted from 0."""
        program = self.setting.program(epoch)
        sent = broadcast(METHOD, before.server)
        engine = LoopEngine(self.setting.work)
        (outcome,) = engine.round(program, sent, {CLIENT: before.private}, observe=False)
        server = server_round(METHOD, before.server, stack([outcome.messages]), program.clock)
        private = cast(PrivateState, outcome.private)  # engines know it as any tree
        return Epoch(server, private, float(outcome.loss), _gradient_sum(private))

    def head(self, after: Epoch) -> Tensor:
        """Returns the rows of the head, [K, d]."""
        return after.server["params"][self.setting.task.structure.classifier]

    @torch.no_grad()
    def tested(self, after: Epoch, at_once: int = 512) -> tuple[Tensor, Tensor]:
        """Returns the features and logits of all test samples."""
        params, buffers = after.server["params"], after.server["buffers"]
        found = []
        for x, y in zip(torch.split(self.test_x, at_once), torch.split(self.test_y, at_once), strict=True):
            mask = torch.ones_like(y, dtype=self.setting.work.like.dtype)
            batch = Batch(x, y, mask, torch.zeros_like(y), {})
            found.append(self.setting.task.forward(params, buffers, batch, False)[0])
        return torch.cat([out.features for out in found]), torch.cat([out.logits for out in found])


def _training_of(study: Study) -> Experiment:
    """Returns the training of a study as an experiment; its data settings are unused: the study has its own data."""
    return Experiment(
        dataset=study.dataset,
        model=study.model,
        rounds=study.epochs,
        participation_rate=1.0,
        local_epochs=1,
        batch_size=study.batch_size,
        learning_rate=study.learning_rate,
        momentum=study.momentum,
        weight_decay=study.weight_decay,
        seed=study.seed,
    )


def _head_gradients() -> Part:
    """Sums up the head's gradients over a client's local work, and changes nothing.

    G = sum_s grad_w l(B_s; theta_s)     w the weight of the head, [K, d]
    Li et al., IEEE TKDE 2024 (MAP), figure 6: "the gradient is accumulated across this training epoch"

    The sum of a round is the client's private slot after it.
    """

    def init_client(initial: Initial) -> Slot:
        return {"sum": torch.zeros_like(initial.params[initial.structure.classifier])}

    def carry(params: Flats, view: View) -> Slot:
        return {"sum": torch.zeros_like(params["model"][view.task.structure.classifier])}

    def gradient(inner: GradientFunction, view: View) -> CarryingGradient:
        head = view.task.structure.classifier

        def summing(
            params: Flats, buffers: Flats, batches: tuple[Batch, ...], carry: Slot
        ) -> tuple[Flats, Flats, Slot]:
            grads, new = inner(params, buffers, batches)
            return grads, new, {"sum": carry["sum"] + grads["model"][head]}

        return summing

    def finish(results: Results, view: View) -> Slot:
        return results[UPLOAD].carry[HEAD_GRADIENTS]

    return Part(HEAD_GRADIENTS, init_client=init_client, carry=carry, gradient=gradient, finish=finish)


def _gradient_sum(private: PrivateState) -> Tensor:
    """Returns G of the client's last round, [K, d], from its private state."""
    found: Tensor = private["slots"][HEAD_GRADIENTS]["sum"]
    return found


METHOD = chain(average(), _head_gradients(), name="study")
