"""The files of a report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports import write_report

ALONE = {"table.md", "table.csv", "curves.png", "curves.csv", "clients.png", "clients.csv", "intervals.csv"}
FILES = {*ALONE, "partition.png", "scatter.png", "scatter.csv", "pairs.csv"}


def test_report_writes_every_file_and_nothing_else(comparison: list[Run], tmp_path: Path) -> None:
    written = write_report(comparison, tmp_path / "report")
    assert {path.name for path in written} == FILES
    assert {path.name for path in (tmp_path / "report").iterdir()} == FILES
    for path in written:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
        else:
            assert "nan" not in path.read_text().lower()
    assert len(pd.read_csv(tmp_path / "report" / "clients.csv")) == 9 * 3 * 30


def test_report_twice_gives_the_same_bytes(comparison: list[Run], tmp_path: Path) -> None:
    first = {path.name: path.read_bytes() for path in write_report(comparison[:6], tmp_path / "a")}
    second = {path.name: path.read_bytes() for path in write_report(comparison[:6], tmp_path / "b")}
    assert first == second


def test_report_without_accuracies_or_counts_still_appears(make_run, tmp_path: Path) -> None:
    names = {path.name for path in write_report([make_run("Empty")], tmp_path / "report")}
    assert names == ALONE


def test_report_of_no_runs_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no finished run"):
        write_report([], tmp_path / "report")
    assert not list(tmp_path.rglob("*.*"))


def test_report_into_a_file_is_refused_by_name(make_run, tmp_path: Path) -> None:
    (tmp_path / "report").write_text("mine")
    with pytest.raises(UserError, match="report"):
        write_report([make_run("A", personal={(1, "after"): [0.5]})], tmp_path / "report")
    assert (tmp_path / "report").read_text() == "mine"


def test_reports_never_import_torch_or_pyplot() -> None:
    check = (
        "import sys, idiolect.reports; print([m for m in ('torch', 'matplotlib.pyplot') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_report_of_one_method_compares_nothing(make_run, tmp_path: Path) -> None:
    run = make_run("MAP", personal={(1, "after"): [0.4, 0.8]})
    assert {path.name for path in write_report([run], tmp_path / "report")} == ALONE


def test_report_of_methods_that_cannot_be_paired_tests_none(make_run, tmp_path: Path) -> None:
    runs = [make_run("A", 0, {(1, "after"): [0.4, 0.8]}), make_run("B", 1, {(1, "after"): [0.4, 0.8]})]
    names = {path.name for path in write_report(runs, tmp_path / "report")}
    assert names == {*ALONE, "scatter.png", "scatter.csv"}


def test_report_compares_every_two_methods_of_a_scene(comparison: list[Run], tmp_path: Path) -> None:
    write_report(comparison, tmp_path / "report", ["csv"])
    pairs = pd.read_csv(tmp_path / "report" / "pairs.csv")
    assert len(pairs) == 9 * 8 / 2 and (pairs["clients"] == 30).all() and (pairs["seeds"] == 3).all()
    assert (pairs["p_holm"] >= pairs["p"]).all()
    intervals = pd.read_csv(tmp_path / "report" / "intervals.csv")
    assert len(intervals) == 9 and (intervals["design"] == "redrawn").all()
    assert ((intervals["low"] < intervals["value"]) & (intervals["value"] < intervals["high"])).all()


def test_clients_of_different_scenes_are_never_paired(make_run, tmp_path: Path) -> None:
    values = [{(1, "after"): [0.4 + seed / 10, 0.8]} for seed in range(3)]
    runs = [
        make_run(label, seed, values[seed], partition=partition)
        for label, partition in (("A", "iid"), ("B", "iid"), ("C", "natural"))
        for seed in range(3)
    ]
    write_report(runs, tmp_path / "report", ["csv"])
    pairs = pd.read_csv(tmp_path / "report" / "pairs.csv")
    assert pairs[["scene", "method", "other"]].values.tolist() == [["iid", "A", "B"]]


def test_one_seed_gives_no_verdict_and_says_what_one_needs(make_run, tmp_path: Path) -> None:
    runs = [make_run(name, 0, {(1, "after"): [0.5 + x, 0.6 + x, 0.8]}) for name, x in (("A", 0), ("B", 0.3))]
    write_report(runs, tmp_path / "report", ["csv", "md"])
    pairs = pd.read_csv(tmp_path / "report" / "pairs.csv")
    assert pairs[["low", "high", "p", "p_holm"]].isna().all(axis=None) and pairs["detectable"].notna().all()
    text = (tmp_path / "report" / "table.md").read_text()
    assert "one seed gives no verdict" in text and "a verdict needs at least three seeds" in text
    assert "Groups" not in text and "95 % interval" not in text
