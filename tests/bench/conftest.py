"""Cells small enough for a blink, and a network with normalisation among the workloads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from idiolect.bench.interleaved_measurement import BenchRow, Turn
from idiolect.bench.report import Report, lines_of
from idiolect.bench.roofline import Peaks
from idiolect.bench.workloads import WORKLOADS, BenchCell

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def small_bn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORKLOADS, "small_bn", ("lenet_bn", (1, 28, 28)))


@pytest.fixture
def small() -> Callable[..., BenchCell]:
    """A cell of float64 with 3 of 5 clients, 20 images each in batches of 8."""

    def make(**changes: Any) -> BenchCell:
        sizes = {"clients": 3, "population": 5, "samples": 20, "batch_size": 8}
        return BenchCell(**{"workload": "dnn", "precision": "float64", **sizes, **changes})

    return make


@pytest.fixture
def measured() -> Callable[..., list[BenchRow]]:
    """Rows of one cell as the bench leaves them: the plain loop takes 2, 4 and 2 s, the others as given."""

    def make(**seconds: list[float]) -> list[BenchRow]:
        cell, rows = BenchCell(), []
        for runner, times in {"plain": [2.0, 4.0, 2.0], **seconds}.items():
            threads = 1 if runner == "plain" else 2
            facts = {"phases": ["round"], "engine": runner, "reason": "as asked", "parameters": 5}
            row = BenchRow(cell, runner, threads, facts=facts, resident=10**6)
            row.turns["round"] = [Turn(time, 140) for time in times]
            rows.append(row)
        rows[0].work["round"] = {"flops": 200, "bytes": 30, "steps": 140}
        return rows

    return make


@pytest.fixture
def report(measured: Callable[..., list[BenchRow]]) -> Report:
    """Two engines, of which ``auto`` is the slower, and a peer that is not there."""
    peaks = Peaks(100.0, 10.0)
    rows = measured(loop=[4.0, 8.0, 4.0], pool=[1.0, 2.0, 1.0], auto=[4.0, 4.0, 4.0])
    rows[3].facts["engine"] = "loop"
    rows.append(BenchRow(BenchCell(), "pfl", 2, refused="not installed; pip install 'pfl==0.6.0'"))
    machine = {"cpu": "a processor", "cores": 2, "torch": "2.0", "load_at_start": 0.0}
    report = Report(machine, {"float32": peaks}, lines_of(rows, peaks))
    json.dumps(report.as_dict())
    return report
