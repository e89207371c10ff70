"""A row's process: asked, answering, failing in a sentence."""

import os
import signal
from dataclasses import asdict

import pytest

from idiolect.bench import worker
from idiolect.bench.plain import Plain
from idiolect.bench.process import Failed, Process
from idiolect.bench.row import Row
from idiolect.bench.runners import PlainRunner
from idiolect.bench.setting import setting_of
from idiolect.bench.turns import measure
from idiolect.errors import UserError


def test_worker_makes_rounds_and_hangs_up(small):
    row = {"cell": asdict(small(clients=2)), "runner": "plain", "threads": 1}
    with Process(row) as process:
        assert process.answer()["parameters"] == 79_510
        turn = process.ask({"do": "turn", "phase": "round"})
        assert turn["seconds"] > 0 and turn["steps"] == 2 * 3 and turn["cuda"] is None
        work = process.ask({"do": "count", "phase": "round"})
        assert work["steps"] == 6 and work["bytes"] > 0


def test_plain_loop_whose_steps_are_not_those_planned_is_refused(small):
    setting = setting_of(small(), "fedavg")
    running = PlainRunner(setting, Plain)
    assert worker._counted(running, "round", planned=9)["steps"] == 9
    with pytest.raises(UserError, match="made 9 optimisation steps where engines plan 8"):
        worker._counted(running, "round", planned=8)


def test_dead_worker_is_named_with_its_exit_code(small):
    with Process({"cell": asdict(small()), "runner": "plain", "threads": 1}) as process:
        process.answer()
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(Failed, match="ended with exit code -9"):
            process.ask({"do": "turn", "phase": "round"})


def test_row_that_fails_does_not_stop_the_others(small):
    rows = [Row(small(), "plain", 1), Row(small(), "looop", 1), Row(small(), "loop", 1)]
    measure([rows], repeats=2, warmup=2, say=lambda sentence: None)
    assert rows[1].refused.startswith("unknown engine 'looop'") and not rows[1].turns
    assert [len(row.turns["round"]) for row in (rows[0], rows[2])] == [2, 2]
    assert rows[2].difference < 1e-9 and not rows[2].refused
    assert rows[0].work["round"]["steps"] == rows[2].turns["round"][0].steps == 9
    assert rows[2].resident > 10**7


def test_cells_take_their_turns_together(small, monkeypatch):
    """No difference is allowed, so that the sway of each cell is asked for."""
    swayed, said = [], []
    monkeypatch.setattr("idiolect.bench.agreement.tolerance", lambda precision, device: 0.0)
    monkeypatch.setattr(
        "idiolect.bench.turns._sway", lambda cell, base, folder: swayed.append(cell.sizes) or 1.0
    )
    cells = [
        [Row(small(sizes=sizes), runner, 1) for runner in ("plain", "loop")]
        for sizes in ("equal", "lognormal")
    ]
    measure(cells, repeats=2, warmup=1, say=said.append)
    rounds = [line.split(",")[2].strip() for line in said if "round 2 of 3" in line or "round 3 of 3" in line]
    assert rounds == ["3 clients", "3 clients", "3 lognormal clients", "3 lognormal clients"] * 2
    assert swayed == ["equal", "lognormal"]
    steps = []
    for plain, loop in cells:
        assert 0 < loop.difference < 1e-9 and not loop.refused
        assert [turn.steps for turn in plain.turns["round"]] == [turn.steps for turn in loop.turns["round"]]
        steps.append([turn.steps for turn in loop.turns["round"]])
    assert steps[0] != steps[1]


def differing(small, monkeypatch, off):
    """The plain loop, and a row of which no difference is allowed but what roundings of the size ``off`` do."""
    monkeypatch.setattr("idiolect.bench.agreement.tolerance", lambda precision, device: 0.0)
    monkeypatch.setattr("idiolect.bench.turns.rounding", lambda precision, device: off)
    rows = [Row(small(), "plain", 1), Row(small(), "loop", 1)]
    measure([rows], repeats=1, warmup=1, say=lambda sentence: None)
    return rows


def test_row_that_differs_is_held_against_the_sway_of_the_plain_loop(small, monkeypatch):
    plain, loop = differing(small, monkeypatch, 1e-3)
    assert plain.sway is None and 1e-5 < loop.sway < 1
    assert 0 < loop.difference < 1e-9 and not loop.refused and loop.turns["round"]


def test_without_a_sway_it_is_refused_and_the_others_go_on(small, monkeypatch):
    """What goes wrong in finding the sway is nobody's fault."""
    plain, loop = differing(small, monkeypatch, "a word")
    assert loop.sway is None and "differs from the plain loop's" in loop.refused and not loop.turns
    assert not plain.refused and plain.turns["round"]
