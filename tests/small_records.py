"""Small records of runs that were never trained, for tests of what reads many runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from idiolect.records import RoundBuffer, RowBuffer, RowKind, RunWriter, spec_hash

METRICS = {
    name: {"higher_is_better": name == "accuracy", "low": 0.0, "high": None} for name in ("accuracy", "loss")
}


def write_run(out: Path, method: str, seed: int = 0, shift: float = 0.0, **settings: Any) -> Path:
    """Writes a run of three rounds and two clients; values of the third round and of the end are shifted."""
    label, _, alpha = method.partition("=")
    label = {"map": "MAP", "map(alpha": "MAP", "fedavg": "FedAvg"}[label]
    headline = "companion" if label == "MAP" else "global"
    level = 0.5 + 0.1 * (label == "MAP") + seed / 100
    rows, rounds = RowBuffer(), RoundBuffer()
    for number in (1, 2, 3):
        moved = shift if number == 3 else 0.0
        rounds.add(number, 0.1, 2, 1_000_000, 1_000_000, 1 / number)
        for moment in ("before", "after"):
            values = [level + number / 100 + client / 10 + moved + (moment == "before") for client in (0, 1)]
            for metric, sign in (("accuracy", 1), ("loss", -1)):
                kind = RowKind("test", headline, moment, "all", metric)
                rows.extend(number, [0, 1], kind, [sign * value for value in values], [10, 20])
        rows.add(number, -1, RowKind("server", "global", "before", "all", "accuracy"), level + moved)
    if label == "MAP":
        rows.extend(3, [0, 1], RowKind("test", headline, "end", "all", "accuracy"), [level + shift, level])
    spec = {"method": method, "dataset": "made", "partition": "iid", "model": "net", "clients": 2, **settings}
    manifest = {
        **{"method": method, "label": label, "seed": seed, "headline": headline, "metrics": METRICS},
        **{"primary_metric": "accuracy", "dataset": "made", "partition": "iid", "model": "net", "spec": spec},
        "options": [["map", {"alpha": float(alpha.rstrip(")"))}]] if alpha else [],
        "spec_hash": spec_hash(spec),
        "versions": {"torch": settings.get("torch", "2")},
        "class_counts": [[1] * 50] * 2,
    }
    name = f"{re.sub(r'[^a-z0-9.]+', '-', method)}-{spec_hash(spec)[:4]}-s{seed}"
    return RunWriter(out, name, manifest).finish(rounds.table(), rows.table())
