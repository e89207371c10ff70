"""A small run to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from idiolect.records import RoundBuffer, RowBuffer, RowKind, RunWriter

MANIFEST = {"method": "fedavg", "label": "FedAvg", "seed": 4, "headline": "global", "spec": {"rounds": 1}}


@pytest.fixture
def tables() -> dict[str, Any]:
    rounds, rows = RoundBuffer(), RowBuffer()
    rounds.add(1, 0.5, 2, 10, 20, 0.7)
    rows.extend(1, [0, 1], RowKind("test", "global", "after", "all", "accuracy"), [0.25, 0.75])
    return {"rounds": rounds.table(), "rows": rows.table()}


@pytest.fixture
def finished_run(tmp_path: Path, tables: dict[str, Any]) -> Path:
    return RunWriter(tmp_path / "out", "one", MANIFEST).finish(**tables)


@pytest.fixture
def manifest() -> dict[str, Any]:
    return dict(MANIFEST)
