"""From scores at a moment of a run to rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from idiolect.core import Program, Tree
from idiolect.engines import server_logits
from idiolect.evaluation import Scores, choose, score
from idiolect.experiments.examine import Arrival, Examined
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
    rows: RowBuffer
    round: int
    server: Tree

    def cohort(self, cohort: list[int], scores: dict[str, Scores]) -> None:
        """The selected clients before and after their local training."""
        for moment, found in scores.items():
            self._write(cohort, "test", moment, "selected", found)

    def everyone(self, program: Program, examined: Examined, moment: str) -> Glimpse:
        """Every predictor on every client's splits, and the shared model on the server's test set."""
        picks = self._record(examined, moment, "all")
        headline, numbers = examined.test.get(self.setting.headline), {}
        if headline:
            numbers["personal"] = sum(headline["accuracy"]) / len(examined.clients)
        if self._has_shared_model() and moment == "before":
            numbers["global"] = self._shared_model(program)
        return Glimpse(numbers, picks)

    def newcomers(self, arrival: Arrival) -> dict[str, str]:
        """Clients who never trained, as they arrive and when they have joined; what was picked for them."""
        self._write(arrival.joined.clients, "test", "before", "new", arrival.before)
        picks = self._record(arrival.joined, "after", "new")
        return {f"{name} of newcomers": member for name, member in picks.items()}

    def remarks(self, client: int, remarks: dict[str, float]) -> None:
        """Numbers about a client that a part wants kept."""
        headline = self.setting.headline
        for metric, value in remarks.items():
            self.rows.add(self.round, client, "none", headline, "end", "all", metric, value)

    def _has_shared_model(self) -> bool:
        """Whether the server holds a whole model, with statistics that belong to it, and data to try it on."""
        structure, federation = self.setting.task.structure, self.setting.federation
        statistics = not structure.buffers or self.setting.experiment.buffers == "average"
        return statistics and len(federation.server_y) > 0 and self.setting.method.is_complete(structure)

    def _shared_model(self, program: Program) -> float:
        work, federation = self.setting.work, self.setting.federation
        x = torch.from_numpy(federation.server_x).to(work.x)
        labels = torch.from_numpy(federation.server_y).to(work.y)
        logits = server_logits(program, self.server, x)
        scores = score([{"global": logits}], [labels], self.setting.metrics)
        self._write([NO_CLIENT], "server", "before", "all", scores)
        return scores["global"]["accuracy"][0]

    def _record(self, examined: Examined, moment: str, population: str) -> dict[str, str]:
        """Writes the rows of both splits; what is chosen, by an oracle too, joins those of the test split."""
        clients, scores, valid = examined
        self._write(clients, "valid", moment, population, valid)
        chosen, picks = choose(self.setting.method.choices, valid, scores)
        self._write(clients, "test", moment, population, scores | chosen)
        return picks

    def _write(self, clients: list[int], split: str, moment: str, population: str, scores: Scores) -> None:
        for predictor, metrics in scores.items():
            for metric, values in metrics.items():
                self.rows.extend(self.round, clients, split, predictor, moment, population, metric, values)
