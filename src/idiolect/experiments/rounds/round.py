"""One round of federated training, described once for simulations and deployments.

A round selects clients, sends them the shared model, collects their answers, merges them, checks them, runs the
server's own stages, lets every client settle, records what came of it, and evaluates.  ``Participants`` are those who
answer: clients on an engine in a simulation, sites over a network in a deployment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import torch

from idiolect.core import (
    Messages,
    Method,
    Plan,
    Program,
    ServerState,
    origins,
    server_round,
)
from idiolect.core.trees import Rows, count_scalars
from idiolect.engines import serve
from idiolect.engines.cpu_tuning import threads_for
from idiolect.evaluation import Scores
from idiolect.experiments.rounds.client_costs import ClientCosts
from idiolect.experiments.rounds.client_scoring import ClientScores, NewcomerScores, ResultRecorder
from idiolect.experiments.rounds.client_work import Work
from idiolect.experiments.rounds.divergence import refuse_broken_server
from idiolect.experiments.rounds.late_uploads import LateUploads
from idiolect.experiments.rounds.personal_downloads import (
    BYTES_PER_SCALAR,
    PersonalDownloads,
    Sent,
    broadcast_bytes,
)
from idiolect.experiments.rounds.privacy_budget import PrivacyBudget
from idiolect.experiments.setting import Setting
from idiolect.records import CountBuffer, RoundBuffer, RowBuffer

__all__ = [
    "Answers",
    "FederatedRun",
    "FollowUp",
    "FollowUpTasks",
    "Participants",
    "bytes_down",
    "bytes_up",
    "receivers",
    "upload_bytes",
]


class Answers(Protocol):
    """What the selected clients sent back after training.

    Attributes:
        clients: those that trained and answered, in client-id order.
        messages: what they sent, with values and weights stacked in that order.
        downloaded: those that received the shared model, whether they answered or not.
    """

    clients: list[int]
    messages: Messages

    @property
    def downloaded(self) -> list[int]: ...

    def check(self) -> None:
        """Refuses answers that are not finite.  The merge is enqueued before, because this may wait for a device."""

    def keep(self) -> None:
        """Keeps the private state that belongs to the answers, now that they are merged."""

    def mean_loss(self) -> float:
        """Returns the mean training loss of the clients that answered."""
        ...

    def work(self) -> Iterable[tuple[int, Work]]:
        """Returns by client the local work of those that trained in this round."""
        ...

    def scores(self) -> Iterable[tuple[list[int], Mapping[str, Scores]]]:
        """Returns by group of clients their scores before and after local training, in an observed round."""
        ...


class FollowUpTasks(NamedTuple):
    """What all clients do after a merge, or at the end of the run.

    Args:
        settle: the phase whose stages they run, ``merged`` or ``end``; None where the method has none.
        score: their predictors are scored.
        remark: the numbers that parts want recorded are collected.
        tally: predictions on the test splits are counted, at the final evaluation.
    """

    settle: str | None
    score: bool
    remark: bool
    tally: bool = False


class FollowUp(Protocol):
    """The results of follow-up tasks; the clients have settled already."""

    def scores(self) -> ClientScores | None:
        """Returns the scores of all clients that answer, or None where nobody does."""
        ...

    def remarks(self) -> Iterable[tuple[int, Mapping[str, float]]]:
        """Returns the numbers to record by client; asked for once, after ``scores``."""
        ...

    def work(self) -> Iterable[tuple[int, Work]]:
        """Returns by client the work of those that settled."""
        ...


class Participants(Protocol):
    """Those who train, settle, score and join in a run.

    Attributes:
        downloads: makes what the server sends to single clients.
    """

    setting: Setting
    downloads: PersonalDownloads

    def train(self, program: Program, sent: Sent, cohort: list[int], observe: bool) -> Answers:
        """Has the selected clients train one round.

        Args:
            sent: what the server sends to them.
            observe: also scores them before and after their local training.
        """
        ...

    def follow_up(self, program: Program, server: ServerState, tasks: FollowUpTasks) -> FollowUp:
        """Has all clients settle; what they score and remark can be asked of the result."""
        ...

    def join(self, server: ServerState, round: int) -> NewcomerScores | None:
        """Lets newcomers that have not joined yet join after the last round; returns None where there are none."""
        ...

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint must hold of the participants, but for private state."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from the state of a checkpoint."""


P = TypeVar("P", bound=Participants)


class _Traffic(NamedTuple):
    """What travels in a round: a download of ``size`` bytes for each receiver, and each sender's upload in bytes."""

    receiving: Sequence[int]
    size: int
    senders: Sequence[int]
    uploads: Sequence[int]


@dataclass
class FederatedRun(Generic[P]):
    """The state of a run between rounds.

    Args:
        server: the server's state.
        rows, rounds: the tables of results since the last checkpoint.
        round: rounds completed.
        latest: current numbers, for a progress bar.
        picks: what was chosen on validation data, and by the oracle, at the last evaluation.
        ended: the stages of the end of the run are done.
        late: uploads that are on their way.
        counts: counts of the final evaluation, since the last checkpoint.

    Attributes:
        costs: what each client has spent so far.
        budget: of differential privacy, where the method promises some.
    """

    participants: P
    server: ServerState
    rows: RowBuffer = field(default_factory=RowBuffer)
    rounds: RoundBuffer = field(default_factory=RoundBuffer)
    round: int = 0
    latest: dict[str, float] = field(default_factory=dict)
    picks: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    late: LateUploads = field(default_factory=LateUploads)
    counts: CountBuffer = field(default_factory=CountBuffer)
    costs: ClientCosts = field(init=False)
    budget: PrivacyBudget = field(init=False)

    def __post_init__(self) -> None:
        federation = self.setting.federation
        self.costs = ClientCosts(federation.population, len(federation.newcomers))
        self.budget = PrivacyBudget(self.setting)

    @property
    def setting(self) -> Setting:
        return self.participants.setting

    def advance(self) -> None:
        """Runs one round: selects, trains, merges, settles, records, and evaluates where the experiment says so."""
        began, setting = time.perf_counter(), self.setting
        program, cohort = setting.program(self.round), setting.cohort(self.round)
        evaluate = setting.experiment.evaluates(self.round + 1)
        observe = (evaluate or setting.experiment.observe == "always") and not setting.numbers_stay_at_sites
        sent = self.participants.downloads.send(program, self.server, cohort)
        answers = self.participants.train(program, sent, cohort, observe)
        traffic = self._merge(program, sent, answers)
        tasks = self._tasks_after_merge(program, evaluate)
        follow_up = self.participants.follow_up(program, self.server, tasks)
        self._record_round(answers, follow_up, traffic, began)
        if observe:
            for clients, scores in answers.scores():
                self._recorder().cohort(clients, scores)
        del answers  # evaluation needs the memory
        if evaluate:
            self._record_evaluation(program, follow_up, "before")

    def finish(self) -> None:
        """Runs the stages of the end of the run on all clients, once, and lets newcomers join."""
        if not self.ended:
            program = self.setting.program(self.round)
            tasks = self._tasks_at_end(program)
            follow_up = self.participants.follow_up(program, self.server, tasks)
            self.costs.settle(follow_up.work())
            if tasks.score:
                self._record_evaluation(program, follow_up, "end")
            for client, remarks in follow_up.remarks():
                self._recorder().remarks(client, remarks)
            self.ended = True
        self.join_newcomers()

    def join_newcomers(self) -> None:
        """Lets newcomers that have not joined yet join by the method's rule; nothing on the server changes."""
        scores = self.participants.join(self.server, self.round)
        if scores is not None:
            self.costs.train(scores.work)
            size = self.participants.downloads.bytes_to_one(self.server)
            self.costs.download([client for client, _ in scores.work], size)
            self.picks |= self._recorder().newcomers(scores)

    def state(self) -> dict[str, Any]:
        """Returns all that the next round depends on, but for private state; randomness comes from its number."""
        picks = {name: torch.tensor(list(member.encode())) for name, member in self.picks.items()}
        late = {"late": self.late.state()} if self.late.waiting else {}
        own = {"picks": picks, "ended": torch.tensor(self.ended), "costs": self.costs.state()}
        return {"server": self.server, **self.participants.state(), **own, **late}

    def restore(self, round: int, state: Mapping[str, Any]) -> None:
        """Continues from a checkpoint, whose tables stay where they are; ``rows`` and ``rounds`` collect what follows.

        Tensors are copied, because rounding depends on how memory is aligned.
        """
        self.round, self.server = round, cast("ServerState", self.setting.work.copied(state["server"]))
        self.picks = {name: bytes(encoded.tolist()).decode() for name, encoded in state["picks"].items()}
        self.ended = bool(state["ended"])
        self.late = LateUploads.from_state(self.setting.work.copied(state.get("late", {})))
        self.costs.restore(state.get("costs"))
        self.participants.downloads.restore(state)
        self.participants.restore(state)

    def _merge(self, program: Program, sent: Sent, answers: Answers) -> _Traffic:
        """Merges what arrives into the server's state; returns what travelled down and up.

        Where nothing arrives, the server stays as it is.
        """
        setting, round = self.setting, program.clock.round
        delays = setting.troubles.delays(round, answers.clients) if setting.experiment.under else {}
        clients, messages = self.late.deliver(round, answers.clients, self._sent(program, answers), delays)
        count = len(clients)
        merged = self.server
        if (
            not clients and setting.method.hides_clients
        ):  # a round without noise would tell that nobody took part
            messages = setting.no_messages
        if messages:
            with threads_for(count * count_scalars(sent.shared)):
                clock = program.clock._replace(cohort_size=count)
                merged = server_round(setting.method, self.server, messages, clock, setting.work.noise)
        plan = program.method.plan(program.scene, program.clock)
        receiving = receivers(plan, round, answers.downloaded, setting.federation.population)
        size = self.participants.downloads.bytes_to_one(self.server)
        traffic = _Traffic(receiving, size, clients, upload_bytes(setting.method, messages, count))
        answers.check()  # only now, after all that can be done while a device computes
        if messages:
            refuse_broken_server(setting.experiment.method, "merge", round + 1, merged["params"])
        if clients or messages:
            merged = _run_server_stages(setting, program, merged, messages)
            merged = self.participants.downloads.keep(program, merged, clients, messages)
        self.server = merged
        answers.keep()
        return traffic

    def _sent(self, program: Program, answers: Answers) -> Messages:
        """Returns what the clients that trained send, which is not what they trained where they are hostile."""
        setting, clients, messages = self.setting, answers.clients, answers.messages
        if not (setting.experiment.under and clients):
            return messages
        origin, named = origins(setting.method, self.server, messages), setting.federation.disturbed
        return setting.troubles.sent(program.clock, clients, messages, origin, named)

    def _tasks_after_merge(self, program: Program, evaluate: bool) -> FollowUpTasks:
        stages = program.method.plan(program.scene, program.clock).merged
        final = self.round + 1 == self.setting.experiment.rounds
        told = not self.setting.numbers_stay_at_sites
        return FollowUpTasks(
            "merged" if stages else None, evaluate and told, remark=False, tally=final and told
        )

    def _tasks_at_end(self, program: Program) -> FollowUpTasks:
        stages = program.method.plan(program.scene, program.clock).end
        told = not self.setting.numbers_stay_at_sites
        remark = any(part.remarks for part in program.method.parts) and told
        settles = bool(stages)
        score = settles and told
        return FollowUpTasks("end" if settles else None, score, remark, tally=score)

    def _record_round(self, answers: Answers, follow_up: FollowUp, traffic: _Traffic, began: float) -> None:
        """Records the loss, time, traffic and local work of a round, which is complete by now."""
        self.round += 1
        loss = answers.mean_loss()
        seconds = time.perf_counter() - began
        down = self.costs.download(traffic.receiving, traffic.size)
        up = self.costs.upload(traffic.senders, traffic.uploads)
        work = self.costs.train(answers.work()).plus(self.costs.settle(follow_up.work()))
        simulated = self._simulated_seconds(self.round - 1, answers.clients)
        self.rounds.add(self.round, seconds, len(answers.clients), down, up, loss, *work, simulated)
        self.latest["loss"] = loss

    def _simulated_seconds(self, round: int, trained: list[int]) -> float | None:
        """Returns how long a round took in the time of a disturbance that says how fast clients are."""
        setting = self.setting
        if not setting.experiment.under:
            return None
        selected = setting.selected(round)
        return setting.troubles.simulated_seconds(round, selected, trained, setting.local_steps)

    def _record_evaluation(self, program: Program, follow_up: FollowUp, moment: str) -> None:
        """Records the scores of all clients and of the shared model."""
        stay = self.setting.numbers_stay_at_sites
        scores = ClientScores([], {}, {}) if stay else follow_up.scores()
        if scores is not None:
            summary = self._recorder().everyone(program, scores, moment)
            self.latest |= summary.numbers
            self.picks = summary.picks
        for spent in self.budget.after(self.round) if moment == "before" else ():
            if math.isfinite(spent.epsilon):
                self._recorder().of_run(spent.metric, spent.epsilon)
                self.latest[spent.metric] = spent.epsilon

    def _recorder(self) -> ResultRecorder:
        final = self.round == self.setting.experiment.rounds
        return ResultRecorder(
            self.setting, self.rows, self.round, self.server, self.counts if final else None
        )


def bytes_up(method: Method, messages: Messages, cohort_size: int) -> int:
    """Returns the bytes that the cohort uploads: four for every scalar of its messages."""
    return sum(upload_bytes(method, messages, cohort_size))


def upload_bytes(method: Method, messages: Messages, cohort_size: int) -> list[int]:
    """Returns the bytes that each client of the cohort uploads, four for every scalar of its messages.

    A part can say that fewer scalars of its values travel.
    """
    if not cohort_size:
        return []
    counts = {part.name: part.scalars for part in method.parts}
    scalars = [0] * cohort_size
    for part, (values, _) in messages.items():
        count = counts.get(part)
        if count:
            each = list(map(count, Rows(values, cohort_size)))
        else:
            each = [count_scalars(values) // cohort_size] * cohort_size
        scalars = [some + more for some, more in zip(scalars, each, strict=True)]
    return [BYTES_PER_SCALAR * count for count in scalars]


def bytes_down(
    sent: ServerState, plan: Plan, round: int, cohort_size: int, population: int, buffers: str = "average"
) -> int:
    """Returns the bytes that clients download: four for every scalar of what is sent to each of them."""
    return broadcast_bytes(sent, buffers) * len(receivers(plan, round, range(cohort_size), population))


def receivers(plan: Plan, round: int, cohort: Sequence[int], population: int) -> list[int]:
    """Returns the clients that download the shared model in a round, once for each time that they do.

    A method whose every client scores the new model sends it to all of them after each merge; the next round then
    starts from what they hold already.
    """
    if not plan.merged:
        return list(cohort)
    return [*range(population), *(cohort if round == 0 else ())]


def _run_server_stages(
    setting: Setting, program: Program, server: ServerState, messages: Messages
) -> ServerState:
    """Returns the server's state after its own stages of the round, where the method has any."""
    if not program.method.plan(program.scene, program.clock).server:
        return server
    server = serve(program, setting.work, server, messages)
    method, round = setting.experiment.method, program.clock.round + 1
    refuse_broken_server(method, "server stage", round, server["params"])
    return server
