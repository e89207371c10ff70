"""A simulated run: an engine trains all clients, and a store keeps their private state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from idiolect.core import Messages, Program, ServerState, Tree, released
from idiolect.core.objectives import OBJECTIVES
from idiolect.core.trees import Rows, any_nan, count_scalars, stack, tree_map
from idiolect.engines import Engine, Outcome, PrivateRows
from idiolect.engines.cpu_tuning import threads_for
from idiolect.evaluation import Scores
from idiolect.experiments.rounds.client_scoring import (
    ClientScores,
    NewcomerScores,
    remarks_of,
    score_clients,
    score_newcomers,
    score_outcomes,
)
from idiolect.experiments.rounds.client_work import Work, WorkCounter
from idiolect.experiments.rounds.divergence import (
    broken_rows,
    refuse_broken,
    refuse_broken_scores,
    settle_moment,
)
from idiolect.experiments.rounds.end_stages import EndProgress
from idiolect.experiments.rounds.newcomers import join
from idiolect.experiments.rounds.personal_downloads import PersonalDownloads, Sent
from idiolect.experiments.rounds.round import FederatedRun, FollowUpTasks
from idiolect.experiments.setting import Setting
from idiolect.federation import ByClient, ClientSet, KeptUploads, Store

__all__ = ["SimulatedClients", "Simulation"]

CHUNK = 256  # clients at most whose private state is read together when all are visited; changes no number


@dataclass
class SimulatedClients:
    """The clients of a simulation as the participants of a run.

    Args:
        downloads: makes what the server sends to single clients.
        joined: newcomers have joined.
        watch_end: is told how many stages at the end of the run are done, and how many there are.
        check_outputs: outputs that are not finite end the run.

    Attributes:
        selected: clients that have taken part.
        counter: counts the work that clients do.
    """

    setting: Setting
    engine: Engine
    store: PrivateRows
    downloads: PersonalDownloads
    joined: bool = False
    watch_end: Callable[[int, int], None] | None = None
    check_outputs: bool = True
    selected: ClientSet = field(init=False)
    counter: WorkCounter = field(init=False)

    def __post_init__(self) -> None:
        self.counter = WorkCounter(self.setting)
        self.selected = ClientSet(self.setting.federation.population)

    def train(
        self, program: Program, sent: Sent, cohort: list[int], observe: bool
    ) -> SimulatedAnswers | NoAnswers:
        """Trains the cohort; the engine and the store are told of the next round, to prepare it meanwhile."""
        if not cohort:
            return NoAnswers(self.setting.selected(program.clock.round))
        privates = sent.with_own(self.store.together(cohort))
        if (coming := next(self.upcoming(program), None)) is not None:
            self.store.prefetch(coming[1])
            self.engine.prepare(*coming)
        outcomes = self.engine.round(program, sent.shared, privates, observe)
        del privates
        with threads_for(len(cohort) * count_scalars(sent.shared)):
            messages, losses, kept = _gathered(outcomes)
            messages = released(
                self.setting.method,
                sent.shared,
                sent.own,
                cohort,
                messages,
                program.clock,
                self.setting.work.noise,
            )
            broken = broken_rows(messages, losses, kept)
        return SimulatedAnswers(cohort, messages, self, program, outcomes, losses, kept, broken)

    def follow_up(self, program: Program, server: ServerState, tasks: FollowUpTasks) -> SimulatedFollowUp:
        """Runs the stages of a phase on all clients; scores and remarks are computed when they are asked for."""
        if tasks.settle:
            progress = EndProgress.of(
                program, tasks.settle, self.setting.federation.population, self.watch_end
            )
            for clients, privates in self.everyone():
                sent = self.downloads.for_follow_up(program, server, clients, settles=True)
                given = sent.with_own(privates)
                settled = self.engine.settle(program, tasks.settle, sent.shared, given, progress.add)
                progress.reach(clients[-1] + 1)
                self._refuse_settled(program, tasks.settle, clients, settled)
                self.store.write(ByClient(clients, settled))
        return SimulatedFollowUp(self, program, server, tasks)

    def _refuse_settled(
        self, program: Program, phase: str, clients: list[int], settled: Sequence[Tree]
    ) -> None:
        moment, round = settle_moment(phase, program.clock.round)
        refuse_broken(
            self.method, moment, round, clients, any_nan(settled), lambda place: {"private": settled[place]}
        )

    @property
    def method(self) -> str:
        return self.setting.experiment.method

    def join(self, server: ServerState, round: int) -> NewcomerScores | None:
        """Lets all newcomers of the federation join, once."""
        if self.joined or not self.setting.federation.newcomers:
            return None
        self.joined = True
        joined = join(self.setting, self.engine, self.sent_to_newcomers(server, round), round)
        work = self.counter.of_joining(joined.program, list(joined.privates))
        scores = score_newcomers(self.setting, joined)
        return scores._replace(work=list(zip(joined.privates, work, strict=True)))

    def sent_to_newcomers(self, server: ServerState, round: int) -> Sent:
        """Returns what the server sends to all newcomers of the federation."""
        federation, program = self.setting.federation, self.setting.program(round, newcomer=True)
        return self.downloads.send(program, server, range(federation.population, len(federation.clients)))

    def state(self) -> dict[str, Any]:
        return {"selected": torch.from_numpy(self.selected.bits())}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.store.restore(state["private"])
        self.selected = ClientSet.from_bits(self.setting.federation.population, state["selected"].numpy())
        self.joined = bool(state["ended"])

    def everyone(self) -> Iterator[tuple[list[int], Mapping[int, Tree]]]:
        """Yields all clients with their private state in chunks, while the store reads the next chunk."""
        population = self.setting.federation.population
        size = self.store.at_once(CHUNK, least=self.setting.largest_cohort)
        for first in range(0, population, size):
            chunk = range(first, min(first + size, population))
            privates = self.store.together(chunk)
            self.store.prefetch(range(first + size, min(first + 2 * size, population)))
            yield list(chunk), privates
            del privates

    def upcoming(self, program: Program) -> Iterator[tuple[Program, list[int]]]:
        """Yields the rounds after that of ``program`` in which a client trains, each with its clients."""
        for round in range(program.clock.round + 1, self.setting.experiment.rounds):
            if cohort := self.setting.cohort(round):
                yield self.setting.program(round), cohort


@dataclass
class SimulatedAnswers:
    """What a simulated cohort sends and keeps.

    Args:
        losses: by client.
        kept: by client, its private state.
        broken: by client, whether something of it is not finite.
    """

    clients: list[int]
    messages: Messages
    participants: SimulatedClients
    program: Program
    outcomes: Sequence[Outcome]
    losses: Tensor
    kept: Sequence[Tree]
    broken: Tensor

    @property
    def downloaded(self) -> list[int]:
        return self.participants.setting.selected(self.program.clock.round)

    def check(self) -> None:
        """Has the engine plan coming rounds while the device is busy, and then reads the device."""
        self.participants.engine.plan_ahead(self.participants.upcoming(self.program))
        round = self.program.clock.round + 1
        refuse_broken(
            self.participants.method, "training", round, self.clients, self.broken, self._sent_and_kept
        )

    def _sent_and_kept(self, place: int) -> Tree:
        messages = tree_map(lambda leaf: leaf[place], self.messages)
        return {"upload": messages, "loss": self.losses[place], "private": self.kept[place]}

    def keep(self) -> None:
        self.participants.store.write(ByClient(self.clients, self.kept))
        self.participants.selected.add(self.clients)

    def mean_loss(self) -> float:
        return float(self.losses.mean())

    def work(self) -> Iterator[tuple[int, Work]]:
        found = self.participants.counter.of(self.program, "round", self.clients)
        return zip(self.clients, found, strict=True)

    def scores(self) -> Iterator[tuple[list[int], Mapping[str, Scores]]]:
        setting, round = self.participants.setting, self.program.clock.round
        yield self.clients, score_outcomes(setting, round, self.clients, self.outcomes)


@dataclass
class NoAnswers:
    """The answers of a round in which all selected clients failed."""

    downloaded: list[int]
    clients: list[int] = field(default_factory=list)
    messages: Messages = field(default_factory=dict)

    def check(self) -> None:
        """Does nothing: there is nothing to check."""

    def keep(self) -> None:
        """Does nothing: private state stays as it was."""

    def mean_loss(self) -> float:
        return math.nan

    def work(self) -> Iterator[tuple[int, Work]]:
        yield from ()

    def scores(self) -> Iterator[tuple[list[int], Mapping[str, Scores]]]:
        yield from ()


@dataclass(frozen=True)
class SimulatedFollowUp:
    """Scores, remarks and work of all clients of a simulation."""

    participants: SimulatedClients
    program: Program
    server: ServerState
    tasks: FollowUpTasks

    def scores(self) -> ClientScores:
        """Scores all clients, and has the store read the rows of the next round's cohort."""
        clients = self.participants
        chunks = (
            clients.downloads.for_follow_up(self.program, self.server, some).with_own(privates)
            for some, privates in clients.everyone()
        )
        found = score_clients(
            clients.setting, clients.engine, self.program, self.server, chunks, self.tasks.tally
        )
        if clients.check_outputs:
            self._check(found)
        if (coming := next(clients.upcoming(self.program), None)) is not None:
            clients.store.prefetch(coming[1])
        return found

    def _check(self, scores: ClientScores) -> None:
        """Refuses outputs that are not finite, which parameters can give that are."""
        setting, clock = self.participants.setting, self.program.clock
        samples = setting.federation.at(clock.round).clients.sizes("test")
        classes = OBJECTIVES[setting.inputs.task].has_classes
        round = min(clock.round + 1, setting.experiment.rounds)
        held = [int(samples[client]) for client in scores.clients]
        refuse_broken_scores(self.participants.method, round, scores.clients, scores.test, held, classes)

    def remarks(self) -> Iterator[tuple[int, Mapping[str, float]]]:
        """Yields remarks by client, once rows that an engine's workers keep are back in the store."""
        setting, downloads = self.participants.setting, self.participants.downloads
        self.participants.store.gather()
        if self.tasks.remark:
            for clients, privates in self.participants.everyone():
                given = downloads.for_follow_up(self.program, self.server, clients).with_own(privates)
                for client in clients:
                    yield client, remarks_of(setting, self.program, self.server, client, given[client])

    def work(self) -> Iterator[tuple[int, Work]]:
        everyone = range(self.participants.setting.federation.population if self.tasks.settle else 0)
        found = self.participants.counter.of(self.program, self.tasks.settle or "merged", everyone)
        return zip(everyone, found, strict=True)


class Simulation(FederatedRun[SimulatedClients]):
    """A run whose clients are simulated."""

    @classmethod
    def start(
        cls, setting: Setting, engine: Engine, store: Store | None = None, kept: KeptUploads | None = None
    ) -> Simulation:
        """Returns a run before its first round.

        Args:
            store: keeps private state; without one it is kept in memory and cannot be saved.
            kept: what the server keeps of each client; without it, it is kept in memory and cannot be saved.
        """
        if store is None:
            store = setting.work.store_in_memory(setting.first_private, setting.private_shapes)
        home = store if setting.method.downloads else engine.residence(store)
        downloads = PersonalDownloads.of(setting, kept)
        return cls(SimulatedClients(setting, engine, home, downloads), setting.first_server())

    @property
    def engine(self) -> Engine:
        return self.participants.engine

    @property
    def store(self) -> PrivateRows:
        return self.participants.store

    @property
    def selected(self) -> ClientSet:
        return self.participants.selected


def _gathered(outcomes: Sequence[Outcome]) -> tuple[Messages, Tensor, Sequence[Tree]]:
    """Returns what a cohort sends and its losses, both stacked, and what each client keeps."""
    if isinstance(outcomes, Rows):
        whole = outcomes.stacked
        return stack(Rows(whole.messages, len(outcomes))), whole.loss, Rows(whole.private, len(outcomes))
    messages = stack([outcome.messages for outcome in outcomes])
    losses = torch.stack([outcome.loss for outcome in outcomes])
    return messages, losses, [outcome.private for outcome in outcomes]
