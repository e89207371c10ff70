"""From a moment of a run to rows: every predictor scored on every split it is looked at on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from idiolect.core import Context, Program, Tree, broadcast
from idiolect.engines import Engine, Outcome, server_logits
from idiolect.engines.evaluation import Logits
from idiolect.evaluation import Scores, choose, score
from idiolect.experiments.newcomers import join
from idiolect.experiments.setting import Setting
from idiolect.records import NO_CLIENT, RowBuffer

__all__ = ["Glimpse", "Recorder"]


class Glimpse(NamedTuple):
    """What is known at once of rows just written.

    Args:
        numbers: for a progress bar.
        picks: what was chosen on validation data, and by the oracle; empty where nothing is chosen.
    """

    numbers: dict[str, float]
    picks: dict[str, str]


@dataclass(frozen=True)
class Recorder:
    """Writes the rows of one moment.

    Args:
        round: rounds completed.
        server: the server's state.
    """

    setting: Setting
    engine: Engine
    rows: RowBuffer
    round: int
    server: Tree

    def cohort(self, cohort: list[int], outcomes: list[Outcome]) -> None:
        """The selected clients before and after their local training."""
        for moment in ("before", "after"):
            scores = self._score([getattr(outcome, moment) for outcome in outcomes], cohort, "test")
            self._write(cohort, "test", moment, "selected", scores)

    def everyone(self, program: Program, chunks: Iterable[dict[int, Tree]], moment: str) -> Glimpse:
        """Every predictor on every client's test split, and the shared model on the server's test set.

        Args:
            chunks: private state of some clients at a time; how many changes no number.
        """
        sent, choices = broadcast(self.setting.method, self.server), self.setting.method.choices
        held_out = bool(choices) or self.setting.experiment.score_valid
        clients: list[int] = []
        scores: Scores = {}
        valid: Scores = {}
        for privates in chunks:
            clients += privates
            for split, found in (("test", scores), ("valid", valid)):
                if split == "test" or held_out:
                    logits = self.engine.evaluate(program, sent, privates, split)
                    _append(found, self._score(logits, list(privates), split))
        picks = self._record(clients, moment, "all", scores, valid)
        headline, numbers = scores.get(self.setting.method.headline), {}
        if headline:
            numbers["personal"] = sum(headline["accuracy"]) / len(clients)
        if self._has_shared_model() and moment == "before":
            numbers["global"] = self._shared_model(program)
        return Glimpse(numbers, picks)

    def newcomers(self) -> dict[str, str]:
        """Clients who never trained, as they arrive and when they have joined; what was picked for them."""
        if not self.setting.federation.newcomers:
            return {}
        joined = join(self.setting, self.engine, self.server, self.round)
        clients, valid = list(joined.privates), {}
        if self.setting.method.choices:
            sent = broadcast(self.setting.method, self.server)
            logits = self.engine.evaluate(joined.program, sent, joined.privates, "valid")
            valid = self._score(logits, clients, "valid")
        self._write(clients, "test", "before", "new", self._score(joined.before, clients, "test"))
        scores = self._score(joined.after, clients, "test")
        picks = self._record(clients, "after", "new", scores, valid)
        return {f"{name} of newcomers": member for name, member in picks.items()}

    def remarks(self, program: Program, client: int, private: Tree) -> None:
        """Numbers about a client that a part wants kept, such as the round of its teacher."""
        sent, headline = broadcast(self.setting.method, self.server), self.setting.method.headline
        context = Context(sent, private, self.setting.work.facts(client), {})
        for metric, value in program.remarks(context).items():
            self.rows.add(self.round, client, "none", headline, "end", "all", metric, float(value))

    def _has_shared_model(self) -> bool:
        """Whether the server holds a whole model: every parameter, and statistics that belong to it."""
        structure = self.setting.task.structure
        statistics = not structure.buffers or self.setting.experiment.buffers == "average"
        return statistics and self.setting.method.is_complete(structure)

    def _shared_model(self, program: Program) -> float:
        work, federation = self.setting.work, self.setting.federation
        x = torch.from_numpy(federation.server_x).to(work.x)
        labels = torch.from_numpy(federation.server_y).to(work.y)
        logits = server_logits(program, self.server, x)
        scores = score([{"global": logits}], [labels], self.setting.metrics)
        self._write([NO_CLIENT], "server", "before", "all", scores)
        return scores["global"]["accuracy"][0]

    def _record(
        self, clients: list[int], moment: str, population: str, scores: Scores, valid: Scores
    ) -> dict[str, str]:
        """Writes the rows of both splits; what is chosen by ``valid`` joins ``scores``."""
        picks: dict[str, str] = {}
        if valid:
            self._write(clients, "valid", moment, population, valid)
            chosen, picks = choose(self.setting.method.choices, valid, scores)
            scores |= chosen
        self._write(clients, "test", moment, population, scores)
        return picks

    def _write(self, clients: list[int], split: str, moment: str, population: str, scores: Scores) -> None:
        for predictor, metrics in scores.items():
            for metric, values in metrics.items():
                self.rows.extend(self.round, clients, split, predictor, moment, population, metric, values)

    def _score(self, logits: list[Logits], clients: list[int], split: str) -> Scores:
        work = self.setting.work
        rows = [getattr(work.federation.clients[c], split) for c in clients]
        labels = [work.y[torch.from_numpy(r).to(work.y.device)] for r in rows]
        return score(logits, labels, self.setting.metrics)


def _append(scores: Scores, more: Scores) -> None:
    """Adds the scores of further clients."""
    for predictor, metrics in more.items():
        for metric, values in metrics.items():
            scores.setdefault(predictor, {}).setdefault(metric, []).extend(values)
