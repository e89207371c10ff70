"""Progress of runs: a bar on a terminal, lines elsewhere, and what the end of a run will cost."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest
from rich.console import Console

import idiolect
from idiolect.engines import EngineChoice
from idiolect.experiments import Execution, Silent, compare, prepare, run
from idiolect.experiments.progress.progress_bar import ProgressBar
from idiolect.experiments.progress.watcher import ProgressLines, progress_on_stderr
from idiolect.experiments.rounds.end_stages import end_stages

LOOP = {"engine": "loop", "device": "cpu"}


def bar() -> tuple[ProgressBar, io.StringIO]:
    drawn = io.StringIO()
    return ProgressBar(Console(file=drawn, force_terminal=True, width=160, color_system=None)), drawn


def test_bar_shows_label_rounds_and_current_numbers():
    terminal, drawn = bar()
    terminal.begin("MAP", rounds=7, done=3)
    terminal.advance(5, {"loss": 1.25, "global": 0.5, "personal": 0.75})
    terminal.end()
    shown = drawn.getvalue()
    assert "MAP" in shown and "5/7" in shown and "rounds/s" in shown
    assert "loss 1.250" in shown and "global 50.0%" in shown and "personal 75.0%" in shown


def test_bar_of_a_resumed_run_begins_where_it_was():
    terminal, drawn = bar()
    terminal.begin("MAP", rounds=7, done=3)
    terminal.end()
    assert "3/7" in drawn.getvalue()


def test_bar_counts_the_runs_of_a_comparison():
    terminal, drawn = bar()
    terminal.expect(2)
    for label in ("FedAvg", "FedPer"):
        terminal.begin(label, rounds=1, done=0)
        terminal.advance(1, {"loss": 1.0})
        terminal.end()
    assert "FedAvg (1/2)" in drawn.getvalue() and "FedPer (2/2)" in drawn.getvalue()


def test_advance_after_the_end_is_ignored():
    terminal, drawn = bar()
    terminal.begin("MAP", rounds=2, done=0)
    terminal.end()
    before = drawn.getvalue()
    terminal.advance(1, {"loss": 1.0})
    assert drawn.getvalue() == before


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def lines_of(seconds_per_round: float, rounds: int, runs: int = 1) -> list[str]:
    """Returns what is written about runs whose rounds take so many seconds."""
    clock, written = Clock(), io.StringIO()
    watcher = ProgressLines(written, clock)
    watcher.expect(runs)
    for _ in range(runs):
        watcher.begin("MAP", rounds, 0)
        for done in range(1, rounds + 1):
            clock.seconds += seconds_per_round
            watcher.advance(done, {"loss": 1.25, "personal": 0.75})
        watcher.end()
    return written.getvalue().splitlines()


def test_line_says_method_round_numbers_and_times():
    first, *_, last = lines_of(seconds_per_round=6, rounds=20)
    assert first == "MAP: round 2/20, loss 1.250, personal 75.0%, 12 s elapsed, about 1 min 48 s left"
    assert last == "MAP: round 20/20, loss 1.250, personal 75.0%, 2 min 0 s elapsed"


@pytest.mark.parametrize(
    ("seconds", "rounds", "expected"),
    [(0.1, 40, 0), (6, 100, 10), (6, 5, 5), (60, 1000, 1000), (100, 4, 4)],
    ids=["short", "tenths", "few-rounds", "a-line-a-minute", "long-rounds"],
)
def test_lines_come_at_tenths_or_once_a_minute(seconds, rounds, expected):
    assert len(lines_of(seconds, rounds)) == expected


def test_many_short_runs_get_a_line_every_five_seconds_together():
    lines = lines_of(seconds_per_round=0.1, rounds=10, runs=40)
    assert 6 <= len(lines) <= 8
    assert lines[-1].startswith("MAP (36/40): round 7/10")


def test_resumed_run_estimates_from_its_own_rounds():
    clock, written = Clock(), io.StringIO()
    watcher = ProgressLines(written, clock)
    watcher.begin("MAP", rounds=100, done=80)
    clock.seconds += 60
    watcher.advance(90, {})
    assert written.getvalue() == "MAP: round 90/100, 1 min 0 s elapsed, about 1 min 0 s left\n"


def test_what_every_run_hints_at_is_shown_once():
    terminal, drawn = bar()
    log, time = io.StringIO(), [0.0]
    lines = ProgressLines(log, now=lambda: time[0])
    for watcher in (terminal, lines):
        for run_number in range(3):
            watcher.begin("MAP", rounds=1, done=0)
            time[0] += 10
            watcher.hint("6 clients")
            watcher.hint(f"run {run_number}")
    for shown in (drawn.getvalue(), log.getvalue()):
        assert shown.count("6 clients") == 1
    assert drawn.getvalue().count("run ") == 3


def test_closed_log_stops_no_run():
    class FullDisk(io.StringIO):
        lost = 0

        def write(self, text: str) -> int:
            if self.lost < 2:
                self.lost += 1
                raise (OSError if self.lost == 1 else ValueError)("no space, or closed")
            return super().write(text)

    written = FullDisk()
    watcher = ProgressLines(written)
    for number in range(3):
        watcher.say(f"sentence {number}")
    assert written.lost == 2 and written.getvalue() == "sentence 2\n"


def test_bar_is_for_terminals_and_lines_for_files(monkeypatch):
    assert isinstance(progress_on_stderr(), ProgressLines)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(progress_on_stderr(), ProgressBar)


def test_python_shows_progress_unless_it_is_quiet(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("idiolect.experiments.progress.watcher.QUIET", 0.0)
    module = sys.modules[compare.__module__]
    monkeypatch.setattr(module, "write_report", lambda *given: None)  # pictures take seconds
    compare(["fedavg", "local"], experiment=tiny, out=tmp_path / "a", **LOOP)
    shown = capsys.readouterr().err
    assert "FedAvg (1/2): round 2/2, loss " in shown and "Local (2/2): round 2/2, loss " in shown
    run(tiny, out=tmp_path / "b", quiet=True, **LOOP)
    run(tiny, out=tmp_path / "c", watcher=Silent(), **LOOP)
    assert capsys.readouterr().err == ""


def test_short_run_shows_nothing(tiny, tmp_path, capsys):
    run(tiny, out=tmp_path, **LOOP)
    assert capsys.readouterr() == ("", "")


def test_quiet_that_is_no_truth_value_is_refused(tiny):
    with pytest.raises(idiolect.UserError, match="quiet must be True or False, got 1"):
        run(tiny, quiet=1)


def test_watcher_is_silent_where_the_execution_says_so():
    assert isinstance(Execution(watcher=Silent()).watcher, Silent)


GRID = "persfl(lambdas=(0.5,), temperatures=(1.0, 2.0), epochs=6)"


@pytest.mark.parametrize(
    ("method", "rate", "expected"),
    [("fedavg", 1.0, None), (GRID, 1.0, 12.0), (GRID, 0.5, 24.0)],
    ids=["none", "everyone", "half"],
)
def test_end_is_counted_in_rounds(method, rate, expected, tiny):
    setting = prepare(
        replace(tiny, method=method, participation_rate=rate), EngineChoice("loop", "cpu", "asked")
    )
    found = end_stages(setting)
    if expected is None:
        assert found is None
        return
    assert (found.training, found.epochs, found.clients) == (2, 12, 4)
    assert found.rounds == pytest.approx(
        expected, rel=0.25
    )  # validation is measured too, in rounds and at the end


def test_costly_end_is_announced_before_the_first_round_and_when_it_begins(tiny, tmp_path):
    heard: list[str] = []

    class Ear(Silent):
        def say(self, sentence: str) -> None:
            heard.append(sentence)

        def hint(self, sentence: str) -> None:
            heard.append(sentence)

        def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
            heard.append(f"round {rounds_done}")

    run(replace(tiny, method=GRID), out=tmp_path, watcher=Ear(), **LOOP)
    sentences = [line for line in heard if line.startswith(("PersFL", "round"))]
    assert sentences[0].startswith(
        "PersFL ends with 2 training stages on each of 4 clients, 12 epochs in all: about"
    )
    assert sentences[1:3] == ["round 1", "round 2"]
    assert sentences[3].startswith(
        "PersFL: the rounds are done and the stages at the end of the run begin, about "
    )


@pytest.mark.parametrize("engine", ["loop", "cohort", pytest.param("pool", marks=pytest.mark.slow)])
def test_end_of_a_run_has_progress_on_every_engine(engine, tiny, tmp_path):
    told: list[tuple[int, int]] = []

    class Ear(Silent):
        def settle(self, done: int, total: int) -> None:
            told.append((done, total))

    run(replace(tiny, method=GRID), out=tmp_path, watcher=Ear(), engine=engine, device="cpu")
    stages = told[-1][1] // 4  # of each of four clients: two students, and what is measured
    assert stages >= 2 and told[-1] == (4 * stages, 4 * stages)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len({done for done, _ in told}) >= stages


def test_end_of_a_run_is_written_with_the_time_left():
    clock, written = Clock(), io.StringIO()
    watcher = ProgressLines(written, clock)
    watcher.expect(2)
    watcher.begin("PersFL", rounds=2, done=0)
    watcher.ending(8.0)
    for done in (1, 2):
        clock.seconds += 10
        watcher.advance(done, {})
    watcher.settle(0, 100)
    for done in (25, 50):
        clock.seconds += 30
        watcher.settle(done, 100)
    lines = written.getvalue().splitlines()
    assert lines[0] == (
        "PersFL (1/2): round 1/2, 10 s elapsed, about 1 min 30 s left, 3 min 10 s for all 2 runs"
    )
    assert lines[-1] == (
        "PersFL (1/2): end of the run 50%, 1 min 20 s elapsed, about 1 min 0 s left, 3 min 20 s for all 2 runs"
    )


def test_bar_shows_rate_and_time_left_after_the_first_round_and_all_runs():
    terminal, drawn = bar()
    terminal.expect(3, side_by_side=2)
    one, other = terminal.lane(0), terminal.lane(1)
    one.begin("MAP", 4, 0)
    other.begin("Local", 4, 0)
    one.advance(1, {"loss": 1.0})
    one.settle(1, 4)
    terminal._progress.refresh()
    shown = drawn.getvalue().splitlines()
    assert any("MAP (1/3): end of the run" in line and "25%" in line and "left" in line for line in shown)
    assert any("Local (2/3)" in line and "- rounds/s" in line for line in shown)
    assert any("all runs" in line and "0/3" in line and "left" in line for line in shown)
    one.end()
    other.end()
