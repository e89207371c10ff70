"""A row's process: asked, answering, failing in a sentence."""

import os
import signal
from dataclasses import asdict

import pytest

from idiolect.bench import interleaved_measurement, worker
from idiolect.bench.interleaved_measurement import BenchRow, measure
from idiolect.bench.plain_loops import PlainLoop
from idiolect.bench.worker import PlainRunner
from idiolect.bench.worker_protocol import Failed, WorkerProcess
from idiolect.bench.workloads import bench_setting
from idiolect.errors import UserError


def test_worker_makes_rounds_and_hangs_up(small):
    row = {"cell": asdict(small(clients=2)), "runner": "plain", "threads": 1}
    with WorkerProcess(row) as process:
        assert process.answer()["parameters"] == 79_510
        turn = process.ask({"do": "turn", "phase": "round"})
        assert turn["seconds"] > 0 and turn["steps"] == 2 * 3 and turn["cuda"] is None
        work = process.ask({"do": "count", "phase": "round"})
        assert work["steps"] == 6 and work["bytes"] > 0


def test_plain_loop_whose_steps_are_not_those_planned_is_refused(small):
    setting = bench_setting(small(), "fedavg")
    running = PlainRunner(setting, PlainLoop)
    assert worker._counted(running, "round", planned=9)["steps"] == 9
    with pytest.raises(UserError, match="made 9 optimisation steps where engines plan 8"):
        worker._counted(running, "round", planned=8)


def test_dead_worker_is_named_with_its_exit_code(small):
    with WorkerProcess({"cell": asdict(small()), "runner": "plain", "threads": 1}) as process:
        process.answer()
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(Failed, match="ended with exit code -9"):
            process.ask({"do": "turn", "phase": "round"})


@pytest.mark.slow
def test_row_that_fails_does_not_stop_the_others(small):
    rows = [BenchRow(small(), "plain", 1), BenchRow(small(), "looop", 1), BenchRow(small(), "loop", 1)]
    measure([rows], repeats=2, warmup=2, say=lambda sentence: None)
    assert rows[1].refused.startswith("unknown engine 'looop'") and not rows[1].turns
    assert [len(row.turns["round"]) for row in (rows[0], rows[2])] == [2, 2]
    assert rows[2].difference < 1e-9 and not rows[2].refused
    assert rows[0].work["round"]["steps"] == rows[2].turns["round"][0].steps == 9
    assert rows[2].resident > 10**7


@pytest.mark.slow
def test_cells_take_their_turns_together(small, monkeypatch):
    """No difference is allowed but the sway, which is asked for of each cell; where none is found the others go on."""
    sways, said = {"equal": 1.0, "lognormal": None}, []
    monkeypatch.setattr("idiolect.bench.interleaved_measurement.tolerance", lambda precision, device: 0.0)
    monkeypatch.setattr(
        "idiolect.bench.interleaved_measurement._sway", lambda cell, base, folder: sways.pop(cell.sizes)
    )
    cells = [[BenchRow(small(sizes=sizes), runner, 1) for runner in ("plain", "loop")] for sizes in sways]
    measure(cells, repeats=2, warmup=1, say=said.append)
    assert not sways
    rounds = [line.split(",")[2].strip() for line in said if "round 2 of 3" in line or "round 3 of 3" in line]
    assert rounds == ["3 clients", "3 clients", "3 lognormal clients"] * 2
    (plain, loop), (ragged, refused) = cells
    steps = [[turn.steps for turn in row.turns["round"]] for row in (plain, loop, ragged)]
    assert steps[0] == steps[1] != steps[2] and len(steps[2]) == 2
    assert plain.sway is None and loop.sway == 1.0 and not loop.refused
    assert refused.sway is None and "differs from the plain loop's" in refused.refused and not refused.turns
    assert 0 < loop.difference < 1e-9 and 0 < refused.difference < 1e-9


@pytest.mark.slow
def test_sway_is_how_far_roundings_carry_the_plain_loop(small, tmp_path, monkeypatch):
    """What goes wrong in finding it is nobody's fault."""
    base = {moment: tmp_path / f"{moment}.npz" for moment in ("start", "after")}
    with WorkerProcess({"cell": asdict(small()), "runner": "plain", "threads": 1}) as process:
        process.answer()
        process.ask({"do": "save", "path": str(base["start"])})
        process.ask({"do": "turn", "phase": "round"})
        process.ask({"do": "save", "path": str(base["after"])})
    monkeypatch.setattr("idiolect.bench.interleaved_measurement.rounding", lambda precision, device: 1e-3)
    assert 1e-5 < interleaved_measurement._sway(small(), base, tmp_path) < 1
    monkeypatch.setattr("idiolect.bench.interleaved_measurement.rounding", lambda precision, device: "a word")
    assert interleaved_measurement._sway(small(), base, tmp_path) is None
