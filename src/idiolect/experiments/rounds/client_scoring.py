"""Scores clients where their labels are, and records the scores as rows of the run's table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from idiolect.core import OBJECTIVES, Context, PrivateState, Program, ServerState, Tree, broadcast
from idiolect.engines import Engine, Outcome, server_logits
from idiolect.engines.contract import Logits
from idiolect.evaluation import (
    Counts,
    PredictionCounts,
    Scores,
    choose,
    count_predictions,
    joined_counts,
    mean_defined,
    score,
)
from idiolect.experiments.rounds.client_work import Work
from idiolect.experiments.rounds.newcomers import JoinedNewcomers
from idiolect.experiments.setting import Setting
from idiolect.records import NO_CLIENT, CountBuffer, CountKind, RowBuffer, RowKind

__all__ = [
    "ClientScores",
    "EvaluationSummary",
    "NewcomerScores",
    "ResultRecorder",
    "concatenate",
    "plain_scores",
    "remarks_of",
    "score_clients",
    "score_newcomers",
    "score_outcomes",
    "scores_of_plain",
]


class ClientScores(NamedTuple):
    """Scores of some clients at one moment of a run.

    Args:
        test, valid: every predictor on the clients' splits; ``valid`` is empty where nothing needs it.
        counts: every predictor's counts on the test splits, at the final evaluation of a task with classes.
    """

    clients: list[int]
    test: Scores
    valid: Scores
    counts: Counts = {}


class NewcomerScores(NamedTuple):
    """Scores of newcomers on arrival, on their test splits, and after they have joined.

    Args:
        work: what each of them did to join.
    """

    before: Scores
    joined: ClientScores
    work: Sequence[tuple[int, Work]] = ()


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
    count: bool = False,
) -> ClientScores:
    """Scores every predictor on each client's test split, and on validation data where something is chosen there.

    Args:
        chunks: private state of some clients at a time; their number changes no score.
        count: also counts predictions on the test splits.
    """
    sent = broadcast(setting.method, server)
    held_out = (setting.validates and bool(setting.method.choices)) or setting.experiment.score_valid
    found: list[ClientScores] = []
    for privates in chunks:
        clients = list(privates)
        round = program.clock.round
        logits = engine.evaluate(program, sent, privates, "test")
        test = _score(setting, round, logits, clients, "test")
        counts = _count(setting, round, logits, clients) if count else {}
        valid: Scores = {}
        if held_out:
            logits = engine.evaluate(program, sent, privates, "valid")
            valid = _score(setting, round, logits, clients, "valid")
        found.append(ClientScores(clients, test, valid, counts))
    return concatenate(found)


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
    counts = _count(setting, end, joined.after, clients)
    return NewcomerScores(before, ClientScores(clients, after, valid, counts))


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
    groups = list(groups)
    whole = ClientScores([], {}, {}, joined_counts(some.counts for some in groups))
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


def _count(setting: Setting, round: int, logits: Sequence[Logits], clients: list[int]) -> Counts:
    """Counts predictions on test splits; nothing where the task has no classes."""
    if not OBJECTIVES[setting.inputs.task].has_classes:
        return {}
    work = setting.work.at(round)
    return count_predictions(logits, [work.labels(client, "test") for client in clients], clients)


def plain_scores(scores: ClientScores) -> list[Any]:
    """Returns scores as values that JSON can hold."""
    counts = {name: [table.tolist() for table in each] for name, each in scores.counts.items()}
    return [scores.clients, scores.test, scores.valid, counts]


def scores_of_plain(values: list[Any]) -> ClientScores:
    """Returns what ``plain_scores`` wrote down."""
    clients, test, valid, counts = values
    widths = (5, 4)
    tables = {
        name: PredictionCounts(
            *(
                np.array(table, np.float64).reshape(-1, width)
                for table, width in zip(each, widths, strict=True)
            )
        )
        for name, each in counts.items()
    }
    return ClientScores(clients, test, valid, tables)


@dataclass(frozen=True)
class ResultRecorder:
    """Writes the scores of one moment of a run as rows.

    Args:
        round: rounds completed.
        server: the server's state.
        counts: takes the counts of predictions too, after the last round.
    """

    setting: Setting
    rows: RowBuffer
    round: int
    server: ServerState
    counts: CountBuffer | None = None

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

    def of_run(self, metric: str, value: float) -> None:
        """Records a number about the run as a whole, before local training."""
        kind = RowKind("none", self.setting.headline, "before", "all", metric)
        self.rows.add(self.round, NO_CLIENT, kind, value)

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
        if OBJECTIVES[self.setting.inputs.task].has_classes:
            self._count(
                "server", "before", "all", count_predictions([{"global": logits}], [labels], [NO_CLIENT])
            )
        return scores["global"][self.setting.primary_metric][0]

    def _named(self, what: str) -> str:
        """Returns the name of a number for a progress bar, with its metric where that is not the accuracy."""
        metric = self.setting.primary_metric
        return what if metric == "accuracy" else f"{what} {metric}"

    def _record(self, scores: ClientScores, moment: str, population: str) -> dict[str, str]:
        """Writes the rows of both splits, with what is chosen among those of the test split; returns the choices."""
        clients, test, valid, counts = scores
        self._write(clients, "valid", moment, population, valid)
        metric = self.setting.primary_metric
        better = self.setting.metrics[metric].higher_is_better
        chosen, picks = choose(self.setting.method.choices, valid, test, metric, better)
        self._write(clients, "test", moment, population, test | chosen)
        if counts:
            self._count("test", moment, population, counts | {n: counts[p] for n, p in picks.items()})
        return picks

    def _count(self, split: str, moment: str, population: str, counts: Counts) -> None:
        if self.counts is None:
            return
        for predictor, (bins, confusion) in counts.items():
            kind = CountKind(split, predictor, moment, population)
            self.counts.extend("calibration", self.round, kind, bins)
            self.counts.extend("confusion", self.round, kind, confusion)

    def _write(self, clients: list[int], split: str, moment: str, population: str, scores: Scores) -> None:
        samples = self._samples(clients, split)
        for predictor, metrics in scores.items():
            for metric, values in metrics.items():
                kind = RowKind(split, predictor, moment, population, metric)
                self.rows.extend(self.round, clients, kind, values, samples)

    def _samples(self, clients: list[int], split: str) -> list[int]:
        """Returns by client the rows that a split held in the last round; 0 where they lie at a site."""
        federation = self.setting.federation.at(self.round - 1)
        if split == "server":
            return [len(federation.server_y)]
        held = federation.clients.sizes(split)
        return [int(held[client]) if client < len(held) else 0 for client in clients]  # a site may come later
