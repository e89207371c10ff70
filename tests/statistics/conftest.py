"""Made-up runs, held in memory: what a reader would give back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from idiolect.records import RoundBuffer, RowBuffer, RowKind, Run

MakeRun = Callable[..., Run]
Key = tuple[int, str, str, str]  # round, predictor, moment, population

METRICS = {
    "accuracy": {"higher_is_better": True, "low": 0.0, "high": 1.0},
    "loss": {"higher_is_better": False, "low": 0.0, "high": None},
}


@pytest.fixture
def make_run() -> MakeRun:
    """Builds a run from values by client under (round, predictor, moment, population)."""

    def make(
        scores: Mapping[Key, Mapping[int, float]] | None = None,
        *,
        name: str = "run",
        seed: int = 0,
        rounds: int = 4,
        metric: str = "accuracy",
        split: str = "test",
        server: Mapping[int, float] | None = None,
        more: RowBuffer | None = None,
        **manifest: Any,
    ) -> Run:
        rows, costs = more or RowBuffer(), RoundBuffer()
        for (number, predictor, moment, population), values in (scores or {}).items():
            rows.extend(
                number, values, RowKind(split, predictor, moment, population, metric), values.values()
            )
        for number, value in (server or {}).items():
            rows.add(number, -1, RowKind("server", "global", "before", "all", metric), value)
        for number in range(1, rounds + 1):
            costs.add(number, 1.0, 2, 100 * number, 10 * number, 0.5)
        facts = {
            "name": name,
            "method": name,
            "seed": seed,
            "headline": "own",
            "metrics": METRICS,
            **manifest,
        }
        return Run(facts, costs.table().to_pandas(), rows.table().to_pandas())

    return make


@pytest.fixture
def final(make_run: MakeRun) -> Callable[..., Run]:
    """A run whose headline has these values on clients 0, 1, ... in the last round."""

    def make(*values: float, **options: Any) -> Run:
        return make_run({(4, "own", "before", "all"): dict(enumerate(values))}, **options)

    return make
