"""Invented runs for trying the page: eight methods, three seeds; no number in them was ever measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from idiolect.records import RoundBuffer, RowBuffer, RowKind, RunWriter, run_name, spec_hash

CLIENTS, ROUNDS, SELECTED = 40, 30, 8
METRICS = {
    name: {"higher_is_better": better, "low": 0.0, "high": high}
    for name, better, high in [
        ("accuracy", True, 1.0),
        ("macro_f1", True, 1.0),
        ("loss", False, None),
        ("ece", False, 1.0),
        ("mce", False, 1.0),
    ]
}
# label, method, headline, has a global model, measured at the end alone, level, bytes up and down of a client
METHODS = [
    ("Local", "local", "companion", False, False, 0.72, 0),
    ("FedAvg", "fedavg", "global", True, False, 0.70, 40_000),
    ("SCAFFOLD", "scaffold", "global", True, False, 0.73, 80_000),
    ("FedPer", "fedper", "composed", False, False, 0.83, 34_000),
    ("PersFL", "persfl", "companion", True, True, 0.85, 40_000),
    ("MAP", "map", "companion", True, False, 0.87, 40_000),
    ("ScaMAP", "scamap", "companion", True, False, 0.88, 80_000),
    ('R&D "mix" <b>\u03b1</b></script>', "mix", "ensemble", True, False, 0.79, 60_000),
]


def write_invented_runs(out: Path, seeds: int = 3) -> list[Path]:
    """Writes the runs like real ones; gives their folders."""
    counts = np.random.default_rng(1).dirichlet([0.4] * 10, CLIENTS) * 150
    return [
        _write(out, place, seed, counts.astype(int)) for place in range(len(METHODS)) for seed in range(seeds)
    ]


def _write(out: Path, place: int, seed: int, counts: np.ndarray) -> Path:
    label, method, headline, has_global, at_end, level, size = METHODS[place]
    noise = np.random.default_rng([place, seed])
    rows, rounds = RowBuffer(), RoundBuffer()
    offsets = np.random.default_rng(7).normal(0, 0.07, CLIENTS) + noise.normal(0, 0.03, CLIENTS)
    for number in range(1, ROUNDS + 1):
        climb = level * (1 - 0.8 * np.exp(-number / (4 + place)))
        scores = np.clip(climb + offsets + noise.normal(0, 0.02, CLIENTS), 0.02, 1)
        if not at_end:
            _measure(rows, number, headline, "after", scores)
        elif number == ROUNDS:
            _measure(rows, number, headline, "end", scores)
        if has_global:
            shared = float(climb * (0.82 + 0.02 * place) + noise.normal(0, 0.008))
            rows.add(number, -1, RowKind("server", "global", "after", "all", "accuracy"), shared)
            rows.add(number, -1, RowKind("server", "global", "after", "all", "loss"), -float(np.log(shared)))
        _observe(rows, number, headline, has_global, scores)
        rounds.add(number, 0.4, SELECTED, SELECTED * size, SELECTED * size, float(1 - climb))
    if method == "persfl":
        for client in range(CLIENTS):
            rows.add(
                ROUNDS,
                client,
                RowKind("none", headline, "end", "all", "teacher round"),
                1 + (client + seed) % ROUNDS,
            )
    if method == "mix":
        for step in range(11):
            bent = np.clip(scores - (step / 10 - 0.4) ** 2, 0, 1)
            rows.extend(
                ROUNDS, range(CLIENTS), RowKind("test", f"mix({step / 10})", "after", "all", "accuracy"), bent
            )
    spec = {"method": method, "dataset": "invented", "clients": CLIENTS, "rounds": ROUNDS}
    manifest = {
        "method": method,
        "label": label,
        "seed": seed,
        "headline": headline,
        "metrics": METRICS,
        "dataset": "invented",
        "partition": "dirichlet(alpha=0.4)",
        "model": "lenet5",
        "spec": spec,
        "spec_hash": spec_hash(spec),
        "class_counts": counts,
        "versions": {"idiolect": "0"},
        "notes": ["invented data, for trying the page"],
    }
    name = run_name(method, "invented", "dirichlet", spec_hash(spec), seed)
    return RunWriter(out, name, manifest).finish(rounds.table(), rows.table())


def _observe(rows: RowBuffer, number: int, headline: str, has_global: bool, scores: np.ndarray) -> None:
    """The clients selected in a round before and after their training."""
    chosen = [(number * SELECTED + place) % CLIENTS for place in range(SELECTED)]
    main = "global" if has_global else "composed"
    told = {
        (main, "before"): 0.8,
        ("after-local", "after"): 1.0,
        (headline, "before"): 0.9,
        (headline, "after"): 1.0,
    }
    for (predictor, moment), share in told.items():
        rows.extend(
            number, chosen, RowKind("test", predictor, moment, "selected", "accuracy"), share * scores[chosen]
        )


def _measure(rows: RowBuffer, number: int, predictor: str, moment: str, scores: np.ndarray) -> None:
    values = {
        "accuracy": scores,
        "macro_f1": scores * 0.9,
        "loss": -np.log(scores),
        "ece": 0.3 * (1 - scores),
        "mce": 0.7 * (1 - scores),
    }
    for metric, found in values.items():
        rows.extend(number, range(CLIENTS), RowKind("test", predictor, moment, "all", metric), found)
