"""The watcher that draws a bar where there is a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from idiolect.cli.terminal import Terminal, print_table


def watched(is_terminal: bool, runs: int = 1) -> tuple[Terminal, io.StringIO]:
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=is_terminal, width=160, color_system=None)
    return Terminal(console, runs), drawn


def test_bar_shows_label_rounds_and_current_numbers():
    terminal, drawn = watched(True)
    terminal.begin("MAP", rounds=7, done=3)
    terminal.advance(5, {"loss": 1.25, "global": 0.5, "personal": 0.75})
    terminal.end()
    shown = drawn.getvalue()
    assert "MAP" in shown and "5/7" in shown and "rounds/s" in shown
    assert "loss 1.250" in shown and "global 50.0%" in shown and "personal 75.0%" in shown


def test_bar_of_a_resumed_run_begins_where_it_was():
    terminal, drawn = watched(True)
    terminal.begin("MAP", rounds=7, done=3)
    terminal.end()
    assert "3/7" in drawn.getvalue()


def test_bar_counts_the_runs_of_a_comparison():
    terminal, drawn = watched(True, runs=2)
    for label in ("FedAvg", "FedPer"):
        terminal.begin(label, rounds=1, done=0)
        terminal.advance(1, {"loss": 1.0})
        terminal.end()
    assert "FedAvg (1/2)" in drawn.getvalue() and "FedPer (2/2)" in drawn.getvalue()


def test_bar_is_not_drawn_without_a_terminal():
    terminal, drawn = watched(False)
    terminal.begin("MAP", rounds=2, done=0)
    terminal.advance(1, {"loss": 1.0})
    terminal.end()
    assert drawn.getvalue() == ""


def test_advance_after_the_end_is_ignored():
    terminal, drawn = watched(True)
    terminal.begin("MAP", rounds=2, done=0)
    terminal.end()
    before = drawn.getvalue()
    terminal.advance(1, {"loss": 1.0})
    assert drawn.getvalue() == before


def test_sentence_is_said_with_or_without_a_terminal():
    for is_terminal in (True, False):
        terminal, drawn = watched(is_terminal)
        terminal.say("resumed from round 3")
        assert "resumed from round 3" in drawn.getvalue()


def test_table_is_printed_with_every_cell():
    drawn = io.StringIO()
    print_table(Console(file=drawn, width=80), [["Method", "Global %"], ["MAP", "81.2"], ["FedAvg", "-"]])
    lines = drawn.getvalue().splitlines()
    assert [cell in line for line, cell in zip(lines[1::2], ["Global %", "81.2"], strict=False)] == [
        True,
        True,
    ]
    assert "FedAvg" in drawn.getvalue()
