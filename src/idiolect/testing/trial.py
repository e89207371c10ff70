"""A trial of a method: the runs that the contracts look at, on one tiny federation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import cloudpickle
import torch

from idiolect.core import UPLOAD, Result, ServerState, Slot, released, server_round
from idiolect.core.trees import stack, tree_map
from idiolect.engines import LoopEngine, serve
from idiolect.engines.client_packing import SINGLE
from idiolect.engines.evaluation import group_context
from idiolect.engines.stages import run_round
from idiolect.experiments.rounds.personal_downloads import PersonalDownloads
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting
from idiolect.testing.midway import Midway
from idiolect.testing.recorder import Passed, Recorder
from idiolect.testing.sameness import differences, privates
from idiolect.testing.watched_hooks import Watch, watched

__all__ = ["FinishedRun", "Trial", "trained_result"]


@dataclass(frozen=True)
class Trial:
    """A method on one tiny federation; what several contracts look at is computed once.

    Args:
        pickled: the method before anything ran, from which copies without a memory are made; None if that fails.
    """

    setting: Setting
    pickled: bytes | None

    @classmethod
    def of(cls, setting: Setting) -> Trial:
        try:
            return cls(setting, cloudpickle.dumps(setting.method))
        except Exception:  # whatever an object of a stranger raises
            return cls(setting, None)

    def fresh(self) -> Setting:
        """Returns the setting with a copy of the method that has never run, as another process would get it."""
        method = self.setting.method if self.pickled is None else cloudpickle.loads(self.pickled)
        return replace(self.setting, method=method)

    @cached_property
    def watch(self) -> Watch:
        """Two rounds and the end of a run on hooks that are watched; an error of a hook ends it."""
        watch = Watch()
        setting = self.fresh()
        setting = replace(setting, method=watched(setting.method, watch))
        try:
            _watched_rounds(setting, watch)
        except Exception as error:
            watch.error = error
        return watch

    @cached_property
    def run(self) -> FinishedRun:
        return _finished_run(self.fresh())

    @cached_property
    def answers(self) -> dict[str, dict[int, Any]]:
        """What the engine ``loop`` makes of the run before its last round."""
        return self.run.midway.ask(LoopEngine(self.setting.work))


class KeptRows(NamedTuple):
    """What the server keeps of the clients that it has heard from, by part and stacked."""

    clients: list[int]
    rows: dict[str, Slot]


class FinishedRun(NamedTuple):
    """A run from its first round to its end on the engine ``loop``.

    Args:
        rounds: what passed through the engine.
        kept: all private state before the first round and after each.
        midway: the run before its last round; ``server`` and ``state`` are the server's state and all that a
            checkpoint holds then, but for private state and ``records``, what the server keeps of each client.
    """

    simulation: Simulation
    rounds: list[Passed]
    kept: list[dict[int, Any]]
    midway: Midway
    server: ServerState
    state: dict[str, Any]
    records: KeptRows


def _watched_rounds(setting: Setting, watch: Watch) -> None:
    """Makes two rounds and the end of a run, client by client, without a store."""
    method, work, engine = setting.method, setting.work, LoopEngine(setting.work)
    server, downloads = setting.first_server(), PersonalDownloads.of(setting, None)
    everyone: dict[int, Any] = {c: setting.first_private(c) for c in range(setting.federation.population)}
    for round in (0, 1):
        program = setting.program(round)
        plan = method.plan(program.scene, program.clock)
        clients = setting.cohort(round)
        sent = downloads.send(program, server, clients)
        cohort = dict(sent.with_own({client: everyone[client] for client in clients}))
        inputs = Midway(setting, sent.shared, cohort, round)
        before = inputs.inputs()
        outcomes = engine.round(program, inputs.sent, cohort, True)
        changed = next(differences(inputs.inputs(), before, None), None)
        if changed is not None and not watch.of("writes"):
            watch.add("writes", f"round {round} of the method", f"changes what clients were given: {changed}")
        messages = stack([outcome.messages for outcome in outcomes])
        messages = released(method, sent.shared, sent.own, clients, messages, program.clock, work.noise)
        server = server_round(method, server, messages, program.clock, work.noise)
        server = serve(program, work, server, messages) if plan.server else server
        server = downloads.keep(program, server, clients, messages)
        everyone |= dict(zip(cohort, (outcome.private for outcome in outcomes), strict=True))
        for phase in ("merged", "end") if round == 1 else ("merged",):
            if getattr(plan, phase):
                sent = downloads.for_follow_up(program, server, list(everyone), settles=True)
                settled = engine.settle(program, phase, sent.shared, sent.with_own(everyone))
                everyone = dict(zip(everyone, settled, strict=True))
    sent = downloads.for_follow_up(setting.program(2), server, list(everyone))
    engine.evaluate(setting.program(2), sent.shared, sent.with_own(everyone), "valid")


def _finished_run(setting: Setting) -> FinishedRun:
    recorder = Recorder(LoopEngine(setting.work))
    simulation = Simulation.start(setting, recorder)
    simulation.participants.check_outputs = False  # the contracts do, and name the predictor
    kept = [privates(simulation)]
    last = setting.experiment.rounds - 1
    for round in range(setting.experiment.rounds):
        if round == last:
            midway, server = Midway.of(simulation), simulation.server
            state, uploads = tree_map(torch.clone, simulation.state()), simulation.participants.downloads.kept
            heard = list(uploads.heard)
            records = KeptRows(heard, uploads.together(heard) if heard else {})
        simulation.advance()
        kept.append(privates(simulation))
    simulation.finish()
    rounds = recorder.rounds[: last + 1]  # after them newcomers join
    return FinishedRun(simulation, rounds, kept, midway, server, state, records)


def trained_result(at: Midway, client: int) -> Result:
    """Returns what the client's local work leaves behind at the upload mark."""
    work, program = at.setting.work, replace(at.program, differentiate=SINGLE.differentiate)
    context = group_context(work, SINGLE, at.sent, {client: at.privates[client]})
    context, _ = run_round(
        program, SINGLE, context, lambda stage: SINGLE.feed(work, program, stage, [client])
    )
    return context.results[UPLOAD]
