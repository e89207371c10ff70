"""The text of the table."""

from __future__ import annotations

import io
import math

import pandas as pd
import pytest

from idiolect.reports import (
    csv_table,
    latex_table,
    markdown_table,
    notes_of,
    page_data,
    plain_rows,
    summarise,
)
from idiolect.reports.summary_table import human_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999.4, "999 B"),
        (999.6, "1.0 kB"),
        (1234, "1.2 kB"),
        (999_960, "1.0 MB"),
        (4.2e9, "4.2 GB"),
        (7e15, "7000.0 TB"),
        (float("nan"), "-"),
    ],
)
def test_bytes_read_in_thousands(count: float, text: str) -> None:
    assert human_bytes(count) == text


def test_plain_rows_show_percent_and_hyphens(make_run) -> None:
    header, row = plain_rows(summarise([make_run("Local", personal={(1, "after"): [0.4, 0.8]})]))
    cells = dict(zip(header, row, strict=True))
    assert cells["Personalised %"] == "60.0"
    assert cells["Global %"] == "-"
    assert cells["SD %"] == "28.3"
    assert (cells["Down"], cells["Up"]) == ("2.5 kB", "3.0 MB")
    assert "Seeds" not in cells


def test_plain_rows_show_the_sd_over_seeds(make_run) -> None:
    runs = [make_run("MAP", seed, {(1, "after"): [0.5 + 0.1 * seed]}) for seed in (0, 1)]
    header, row = plain_rows(summarise(runs))
    cells = dict(zip(header, row, strict=True))
    assert cells["Personalised %"] == "55.0 ± 7.1"
    assert cells["SD %"] == "-"
    assert cells["Seeds"] == "2"


def test_markdown_sets_those_in_bold_that_cannot_be_told_apart_from_the_best(make_run) -> None:
    levels = {"A": 0.80, "B": 0.801, "C": 0.7}
    runs = [
        make_run(name, seed, {(1, "after"): [value + 0.01 * seed * (-1) ** place, value]})
        for place, (name, value) in enumerate(levels.items())
        for seed in range(4)
    ]
    lines = markdown_table(summarise(runs)).splitlines()
    rows = {line.split(" | ")[0].strip("| "): line for line in lines}
    assert rows["A"].count("**") == rows["B"].count("**") == 2 and "**" not in rows["C"]
    assert "cannot be told apart from the best are bold" in "\n".join(lines)


def test_one_seed_has_nothing_in_bold(make_run) -> None:
    runs = [make_run(name, 0, {(1, "after"): [value, 0.5]}) for name, value in (("A", 0.8), ("B", 0.2))]
    assert "**" not in markdown_table(summarise(runs))


def test_markdown_escapes_bars_and_prints_notes(make_run) -> None:
    run = make_run("A|B", personal={(1, "after"): [0.5]}, notes=["two clients dropped"])
    text = markdown_table(summarise([run]), notes_of([run]))
    assert "A\\|B" in text
    assert "- two clients dropped" in text
    assert "n - 1" in text


def test_notes_name_their_method_unless_common(make_run) -> None:
    values = {(1, "after"): [0.5]}
    runs = [
        make_run("A", personal=values, notes=["common", "mine"]),
        make_run("B", personal=values, notes=["common"]),
    ]
    assert notes_of(runs) == ["common", "A: mine"]


def test_notes_name_their_seeds_unless_common(make_run) -> None:
    notes = {
        ("A", 0): ["all", "first", "of A", "one of A", "apart"],
        ("A", 1): ["all", "of A"],
        ("B", 0): ["all", "first", "apart"],
        ("B", 1): ["all", "apart"],
    }
    values = {(1, "after"): [0.5]}
    runs = [make_run(name, seed, values, notes=own) for (name, seed), own in notes.items()]
    told = ["all", "seed 0: first", "A: of A", "A, seed 0: one of A", "A (seed 0), B: apart"]
    assert notes_of(runs) == told


def test_notes_name_their_scene_unless_common(make_run) -> None:
    notes = {
        ("x", "A"): ["all", "in x", "of A", "A in x"],
        ("x", "B"): ["all", "in x"],
        ("y", "A"): ["all", "of A", "elsewhere"],
        ("y", "B"): ["all", "elsewhere", "A in x"],
    }
    values = {(1, "after"): [0.5]}
    runs = [make_run(name, 0, values, notes=own, dataset=dataset) for (dataset, name), own in notes.items()]
    told = ["all", "x: in x", "A: of A", "x: A: A in x", "y: B: A in x", "y: elsewhere"]
    assert notes_of(runs) == told


def test_csv_keeps_every_digit(make_run) -> None:
    summary = summarise([make_run("A", personal={(1, "after"): [1 / 3]})])
    assert pd.read_csv(io.StringIO(csv_table(summary)))["personal_accuracy"][0] == 1 / 3


@pytest.mark.parametrize("second", ["one", "two", None])
def test_seconds_stand_only_where_all_runs_come_from_one_machine(make_run, second: str | None) -> None:
    machines = {"A": {"cpu": "one"}, "B": {"cpu": second} if second else None}
    runs = [
        make_run(label, 0, {(1, "after"): [0.5, 0.6]}, seconds=3.0, hardware=machine)
        for label, machine in machines.items()
    ]
    summary = summarise(runs)
    together = second == "one"
    header, row, _ = plain_rows(summary)
    assert row[header.index("Seconds")] == ("3.0" if together else "-")
    assert pd.read_csv(io.StringIO(csv_table(summary)))["seconds"].notna().all() == together
    assert ("Seconds are left out" in markdown_table(summary)) is not together
    assert ("Seconds are left out" in latex_table(summary)) is not together
    seconds = page_data(runs)["scenes"][0]["costs"][0]["seconds"]
    assert seconds == 3.0 if together else math.isnan(seconds)


def test_many_groups_are_told_in_a_word(make_run, monkeypatch) -> None:
    """Three methods with two groups, A and B, B and C, where one group is what a column can show."""
    draws = {"A": [0.9, 0.901, 0.899], "B": [0.7, 0.85, 0.8], "C": [0.6, 0.601, 0.599]}
    runs = [
        make_run(name, seed, {(1, "after"): [value, value]})
        for name, values in draws.items()
        for seed, value in enumerate(values)
    ]
    assert list(summarise(runs)["groups"]) == ["a", "ab", "b"]
    monkeypatch.setattr("idiolect.reports.summary_table.MOST_GROUPS", 1)
    summary = summarise(runs)
    assert list(summary["groups"]) == ["best", "best", ""]
    text = markdown_table(summary)
    assert text.count("**") == 4 and "too many groups for letters, and these are bold" in text
    assert "share a letter" not in text
