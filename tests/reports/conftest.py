"""Made-up runs, written and read through the records like real ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from idiolect.records import RoundBuffer, RowBuffer, RowKind, Run, RunWriter, read_run, run_name, spec_hash

MakeRun = Callable[..., Run]

# label, headline predictor, has a global model, personalised accuracy only at the end, final level
METHODS = [
    ("Local", "companion", False, False, 0.70),
    ("FedAvg", "global", True, False, 0.74),
    ("FedAvg-LU", "LU", True, True, 0.83),
    ("FedProx", "global", True, False, 0.745),
    ("SCAFFOLD", "global", True, False, 0.76),
    ("FedPer", "composed", False, False, 0.85),
    ("PersFL", "companion", True, True, 0.86),
    ("MAP", "companion", True, False, 0.88),
    ("ScaMAP", "companion", True, False, 0.885),
]


def maker(folder: Path) -> MakeRun:
    """Writes a run from client accuracies by (round, moment) and global accuracies by round."""

    def make(
        label: str,
        seed: int = 0,
        personal: dict[tuple[int, str], list[float]] | None = None,
        server: dict[int, float] | None = None,
        headline: str = "companion",
        **manifest: Any,
    ) -> Run:
        rows, rounds = RowBuffer(), RoundBuffer()
        for (number, moment), values in (personal or {}).items():
            clients = range(len(values))
            rows.extend(number, clients, RowKind("test", headline, moment, "all", "accuracy"), values)
            rows.extend(
                number,
                clients,
                RowKind("test", headline, moment, "selected", "accuracy"),
                [0.0] * len(values),
            )
            rows.extend(
                number, clients, RowKind("test", headline, moment, "all", "loss"), [9.0] * len(values)
            )
            rows.extend(
                number, clients, RowKind("valid", headline, moment, "all", "accuracy"), [0.0] * len(values)
            )
            rows.extend(
                number, clients, RowKind("test", "decoy", moment, "all", "accuracy"), [0.0] * len(values)
            )
        for number, value in (server or {}).items():
            rows.add(number, -1, RowKind("server", "global", "after", "all", "accuracy"), value)
        for number in (1, 2, 3, 4):
            rounds.add(number, 0.5 + seed, 2, 1000 * number, 3_000_000, 0.7)
        spec = manifest.pop("spec", {"rounds": 4})
        facts = {"label": label, "headline": headline, "spec": spec, "notes": [], "dataset": "digits"}
        name = run_name(label, "digits", "dirichlet", spec_hash({**spec, **manifest}), seed)
        document = {"method": label.lower(), "seed": seed, **facts, **manifest}
        return read_run(RunWriter(folder, name, document).finish(rounds.table(), rows.table()))

    return make


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    return maker(tmp_path)


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Nine methods, three seeds, thirty clients, forty rounds."""
    make_run, runs = maker(tmp_path_factory.mktemp("comparison")), []
    counts = np.random.default_rng(1).dirichlet([0.4] * 10, 30) * 120
    for place, (label, headline, has_global, only_end, level) in enumerate(METHODS):
        for seed in range(3):
            noise = np.random.default_rng([place, seed])
            climb = {r: level * (1 - 0.75 * np.exp(-r / (5 + place))) for r in range(1, 41, 1)}
            offsets = noise.normal(0, 0.08, 30)
            personal = {
                (r, "after"): np.clip(v + offsets + noise.normal(0, 0.02, 30), 0, 1).tolist()
                for r, v in climb.items()
            }
            if only_end:
                personal = {(40, "end"): np.clip(level + offsets, 0, 1).tolist()}
            server = {r: v * (0.9 + 0.01 * place) + noise.normal(0, 0.01) for r, v in climb.items()}
            facts = {"class_counts": counts.astype(int).tolist(), "partition": "Dirichlet 0.4"}
            runs.append(make_run(label, seed, personal, server if has_global else None, headline, **facts))
    return runs
