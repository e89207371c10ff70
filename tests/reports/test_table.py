"""The text of the table."""

from __future__ import annotations

import io

import pandas as pd
import pytest

from idiolect.reports import csv_table, markdown_table, notes_of, plain_rows, summarise
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


def test_markdown_sets_the_best_in_bold_and_ties_alike(make_run) -> None:
    levels = {"A": 0.80001, "B": 0.80002, "C": 0.7}
    runs = [make_run(name, personal={(1, "after"): [value]}) for name, value in levels.items()]
    lines = markdown_table(summarise(runs)).splitlines()
    rows = {line.split(" | ")[0].strip("| "): line for line in lines}
    assert "**80.0**" in rows["A"]
    assert "**80.0**" in rows["B"]
    assert "**" not in rows["C"]


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


def test_csv_keeps_every_digit(make_run) -> None:
    summary = summarise([make_run("A", personal={(1, "after"): [1 / 3]})])
    assert pd.read_csv(io.StringIO(csv_table(summary)))["personal_accuracy"][0] == 1 / 3
