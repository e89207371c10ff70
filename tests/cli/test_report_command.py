"""`idiolect report`: one page, a sentence for each folder passed over, and exit code 2 only where nothing is left."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from ..reports.invented import write_invented_runs
from .conftest import Call


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return write_invented_runs(tmp_path / "runs", seeds=1)[:3]


def test_report_writes_the_page_alone(idiolect: Call, folders: list[Path], tmp_path: Path) -> None:
    answer = idiolect("report", *map(str, folders), "--out", str(tmp_path / "out"))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.strip() == str(tmp_path / "out" / "report.html")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_report_goes_on_past_a_broken_run(idiolect: Call, folders: list[Path], tmp_path: Path) -> None:
    (folders[1] / "rounds.parquet").write_bytes(b"")
    out = tmp_path / "out"
    answer = idiolect("report", *map(str, folders), "--out", str(out), "--format", "svg,tex", "--json")
    assert answer.code == 0
    assert answer.err.count("\n") == 1 and folders[1].name in answer.err
    found = json.loads(answer.out)
    assert found["runs"] == [folders[0].name, folders[2].name] and len(found["passed_over"]) == 1
    assert sorted(map(Path, found["files"])) == sorted(out.iterdir())
    assert {path.suffix for path in out.iterdir()} == {".html", ".svg", ".tex"}
    assert folders[1].name in (out / "report.html").read_text(encoding="utf-8")


def test_report_of_nothing_is_a_mistake(idiolect: Call, tmp_path: Path) -> None:
    answer = idiolect("report", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out"))
    assert answer.code == 2 and answer.out == ""
    assert answer.err.splitlines()[-1].startswith("idiolect: no finished run in ")
    assert not (tmp_path / "out").exists()


def test_report_in_an_unknown_format_is_a_mistake(
    idiolect: Call, folders: list[Path], tmp_path: Path
) -> None:
    runs = [*map(str, folders), str(tmp_path / "nowhere")]
    answer = idiolect("report", *runs, "--out", str(tmp_path / "out"), "--format", "docx")
    assert answer.code == 2 and "docx" in answer.err and "png, svg, pdf, md, csv, tex" in answer.err
    assert "nowhere" not in answer.err  # it says nothing of runs before


def test_report_reads_final_values_by_the_rule_that_is_asked_for(
    idiolect: Call, folders: list[Path], tmp_path: Path
) -> None:
    found = {}
    for reading in ("last", "mean(20)"):
        out = tmp_path / reading
        answer = idiolect(
            "report", *map(str, folders), "--format", "csv", "--out", str(out), "--reading", reading
        )
        assert answer.code == 0
        found[reading] = pd.read_csv(out / "table.csv")
    assert (found["mean(20)"]["personal_accuracy"] < found["last"]["personal_accuracy"]).any()
    answer = idiolect("report", str(folders[0]), "--reading", "best", "--out", str(tmp_path / "none"))
    assert answer.code == 2 and "a reading is last, mean(5) or validated; got 'best'" in answer.err
    assert not (tmp_path / "none").exists()
