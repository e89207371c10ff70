"""Scores clients where their labels are, and records the scores as rows of the run's table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch

from idiolect.core import Context, PrivateState, Program, ServerState, Tree, broadcast
from idiolect.engines import Engine, Outcome, server_logits
from idiolect.engines.contract import Logits
from idiolect.evaluation import Scores, choose, mean_defined, score
from idiolect.experiments.newcomers import JoinedNewcomers
from idiolect.experiments.setting import Setting
from idiolect.records import NO_CLIENT, RowBuffer, RowKind

__all__ = [
    "ClientScores",
    "EvaluationSummary",
    "NewcomerScores",
    "ResultRecorder",
    "concatenate",
    "remarks_of",
    "score_clients",
    "score_newcomers",
    "score_outcomes",
]


class ClientScores(NamedTuple):
    """Scores of some clients at one moment of a run.

    Args:
        test, valid: every predictor on the clients' splits; ``valid`` is empty where nothing needs it.
    """

    clients: list[int]
    test: Scores
    valid: Scores


class NewcomerScores(NamedTuple):
    """Scores of newcomers on arrival, on their test splits, and after they have joined."""

    before: Scores
    joined: ClientScores


class EvaluationSummary(NamedTuple):
    """The main results of an evaluation that was just recorded.

    Args:
        numbers: for a progress bar.
        picks: what was chosen on validation data, and by the oracle; empty where nothing is chosen.
    """

    numbers: dict[str, float]
    picks: dict[str, str]


def score_clients(
    setting: Setting,
    engine: Engine,
    program: Program,
    server: ServerState,
    chunks: Iterable[Mapping[int, Tree]],
) -> ClientScores:
    """Scores every predictor on each client's test split, and on validation data where something is chosen there.

    Args:
        chunks: private state of some clients at a time; their number changes no score.
    """
    sent = broadcast(setting.method, server)
    held_out = (setting.validates and bool(setting.method.choices)) or setting.experiment.score_valid
    found = ClientScores([], {}, {})
    for privates in chunks:
        clients = list(privates)
        scored: dict[str, Scores] = {"test": {}, "valid": {}}
        for split in ("test", "valid") if held_out else ("test",):
            logits = engine.evaluate(program, sent, privates, split)
            scored[split] = _score(setting, program.clock.round, logits, clients, split)
        found = concatenate([found, ClientScores(clients, **scored)])
    return found


def score_outcomes(
    setting: Setting, round: int, cohort: list[int], outcomes: Sequence[Outcome]
) -> dict[str, Scores]:
    """Scores the clients that trained in a round, counted from 0, before and after their local training."""
    return {
        moment: _score(setting, round, [getattr(outcome, moment) for outcome in outcomes], cohort, "test")
        for moment in ("before", "after")
    }


def score_newcomers(setting: Setting, joined: JoinedNewcomers) -> NewcomerScores:
    """Scores newcomers on their test splits, and on validation data where something is chosen there."""
    clients, end = list(joined.privates), setting.experiment.rounds
    valid = _score(setting, end, joined.valid, clients, "valid")
    before, after = (
        _score(setting, end, logits, clients, "test") for logits in (joined.before, joined.after)
    )
    return NewcomerScores(before, ClientScores(clients, after, valid))


def remarks_of(
    setting: Setting, program: Program, server: ServerState, client: int, private: Tree
) -> dict[str, float]:
    """Returns the numbers about a client that a part wants recorded, such as the round of its teacher."""
    sent = broadcast(setting.method, server)
    facts = setting.work.at(program.clock.round).facts(client)
    context = Context(sent, cast("PrivateState", private), facts, {})
    return {metric: float(value) for metric, value in program.remarks(context).items()}


def concatenate(groups: Iterable[ClientScores]) -> ClientScores:
    """Returns the scores of several groups of clients as those of one, in the order given."""
    whole = ClientScores([], {}, {})
    for some in groups:
        whole.clients.extend(some.clients)
        for scores, more in ((whole.test, some.test), (whole.valid, some.valid)):
            for predictor, metrics in more.items():
                for metric, values in metrics.items():
                    scores.setdefault(predictor, {}).setdefault(metric, []).extend(values)
    return whole


def _score(setting: Setting, round: int, logits: Sequence[Logits], clients: list[int], split: str) -> Scores:
    work = setting.work.at(round)
    labels = [work.labels(client, split) for client in clients]
    return score(logits, labels, setting.metrics, setting.units)


@dataclass(frozen=True)
class ResultRecorder:
    """Writes the scores of one moment of a run as rows.

    Args:
        round: rounds completed.
        server: the server's state.
    """

    setting: Setting
    rows: RowBuffer
    round: int
    server: ServerState

    def cohort(self, clients: list[int], scores: Mapping[str, Scores]) -> None:
        """Records the selected clients before and after their local training."""
        for moment, found in scores.items():
            self._write(clients, "test", moment, "selected", found)

    def everyone(self, program: Program, scores: ClientScores, moment: str) -> EvaluationSummary:
        """Records every predictor on all clients' splits, and the shared model on the server's test set."""
        picks = self._record(scores, moment, "all")
        headline, numbers = scores.test.get(self.setting.headline), {}
        metric, named = self.setting.primary_metric, self._named
        if headline:
            numbers[named("personal")] = mean_defined(headline[metric])
        if self._has_shared_model() and moment == "before":
            numbers[named("global")] = self._shared_model(program)
        return EvaluationSummary(numbers, picks)

    def newcomers(self, scores: NewcomerScores) -> dict[str, str]:
        """Records newcomers on arrival and after they have joined; returns what was chosen for them."""
        self._write(scores.joined.clients, "test", "before", "new", scores.before)
        picks = self._record(scores.joined, "after", "new")
        return {f"{name} of newcomers": member for name, member in picks.items()}

    def remarks(self, client: int, remarks: Mapping[str, float]) -> None:
        """Records numbers about a client that a part wants recorded."""
        headline = self.setting.headline
        for metric, value in remarks.items():
            self.rows.add(self.round, client, RowKind("none", headline, "end", "all", metric), value)

    def _has_shared_model(self) -> bool:
        """Returns whether the server trains a whole model, has statistics that belong to it, and data to test it on."""
        structure, federation = self.setting.task.structure, self.setting.federation
        statistics = not structure.buffers or self.setting.experiment.buffers == "average"
        return statistics and len(federation.server_y) > 0 and self.setting.trains_shared_model

    def _shared_model(self, program: Program) -> float:
        """Records the shared model's scores on the server's test set; returns the one it is judged by."""
        work, federation = self.setting.work, self.setting.federation
        x = torch.from_numpy(federation.server_x).to(work.x)
        labels = torch.from_numpy(federation.server_y).to(work.y)
        logits = server_logits(program, self.server, x)
        scores = score([{"global": logits}], [labels], self.setting.metrics, self.setting.units)
        self._write([NO_CLIENT], "server", "before", "all", scores)
        return scores["global"][self.setting.primary_metric][0]

    def _named(self, what: str) -> str:
        """Returns the name of a number for a progress bar, with its metric where that is not the accuracy."""
        metric = self.setting.primary_metric
        return what if metric == "accuracy" else f"{what} {metric}"

    def _record(self, scores: ClientScores, moment: str, population: str) -> dict[str, str]:
        """Writes the rows of both splits, with what is chosen among those of the test split; returns the choices."""
        clients, test, valid = scores
        self._write(clients, "valid", moment, population, valid)
        metric = self.setting.primary_metric
        better = self.setting.metrics[metric].higher_is_better
        chosen, picks = choose(self.setting.method.choices, valid, test, metric, better)
        self._write(clients, "test", moment, population, test | chosen)
        return picks

    def _write(self, clients: list[int], split: str, moment: str, population: str, scores: Scores) -> None:
        samples = self._samples(clients, split)
        for predictor, metrics in scores.items():
            for metric, values in metrics.items():
                kind = RowKind(split, predictor, moment, population, metric)
                self.rows.extend(self.round, clients, kind, values, samples)

    def _samples(self, clients: list[int], split: str) -> list[int]:
        """Returns by client the rows that a split holds; 0 where they lie at a site."""
        federation = self.setting.federation
        if split == "server":
            return [len(federation.server_y)]
        held: list[int] = federation.clients.sizes(split)[clients].tolist()
        return held
