"""Measured numbers in documents, from small records."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from idiolect.reproduction.measured_beside_published import (
    between_marks,
    front_table,
    measured_section,
    recorded_tables,
    searches,
)
from idiolect.reproduction.reproduce import reproduce
from idiolect.reproduction.results import collect

ROOT = Path(__file__).parents[2]
LOOP = {"engine": "loop", "device": "cpu", "quiet": True}


@pytest.fixture(scope="module")
def recorded(tiny_scenes, tmp_path_factory):
    """Results of two tables: three seeds of two methods, one seed of a third that diverges; and their first table."""
    out = tmp_path_factory.mktemp("published")
    asked = {"columns": ["fa-lenet"], "preset": "reproduction", "out": out / "runs", **LOOP}
    reproduce("map-table2", methods=["fedrs"], seeds=1, **asked)
    done = reproduce("map-table2", methods=["fedavg", "map"], seeds=3, **asked)
    collect([out / "runs"], out / "results", print)
    return out / "results", {one.row: one for one in done.numbers}


def test_card_shows_every_cell_of_its_method_beside_the_paper(recorded):
    folder, made = recorded
    text = measured_section("map", folder)
    half = (made["MAP"].interval[1] - made["MAP"].interval[0]) / 2
    cell = "| `map-table2` | MAP, fa-lenet | preset reproduction, float32"
    assert f"{cell} | {made['MAP'].value:.2f} ± {half:.2f} | 3 | 91.80 |" in text
    assert " One setting was run where the paper prints the best of several.\n" in text
    assert "`map-table1`" in text and "FedAvg" not in text and text.startswith("\nMeasured\n--------\n")
    assert (
        "| `map-table2` | FedRS, fa-lenet | preset reproduction, float32 | diverged | 1 |"
        in measured_section("fedrs", folder)
    )
    assert measured_section("moon", folder) == ""


def test_front_table_has_measured_and_published_numbers(recorded):
    folder, made = recorded
    text = front_table(["map-table2"], folder)
    half = (made["FedAvg"].interval[1] - made["FedAvg"].interval[0]) / 2
    assert f"| FedAvg | {made['FedAvg'].value:.2f} ± {half:.2f} (91.30) |" in text
    assert "1 to 3 seeds; preset reproduction, float32." in text.splitlines()[0]
    assert "| FedRS | diverged (" in text and "MOON" not in text
    both = front_table(["map-table1", "map-table2"], folder)
    assert both.startswith("`map-table1`, `map-table2` measured in %, ") and both.count("\n| FedAvg |") == 1
    assert "| map-table1, fa-lenet | map-table2, fa-lenet |" in re.sub(" +", " ", both)
    assert (
        f"| {made['FedAvg'].value:.2f} ± {half:.2f} (91.30) |" in both.split("| FedAvg |")[1].splitlines()[0]
    )
    assert front_table(["persfl-table2"], folder) == "" and searches(folder) == ""


def test_caption_names_the_columns_where_they_ran_under_different_presets(recorded, tiny_scenes, tmp_path):
    out = tmp_path / "runs"
    reproduce("map-table2", columns=["c10-tfcnn"], methods=["map"], preset="paper", seeds=1, out=out, **LOOP)
    shutil.copytree(recorded[0], tmp_path / "results")
    collect([out], tmp_path / "results", print)
    caption = front_table(["map-table2"], tmp_path / "results").splitlines()[0]
    assert "; fa-lenet: preset reproduction, float32; " in caption and "c10-tfcnn" in caption
    assert ": preset paper, float32. `map-table2`: Accuracy of the personalised models" in caption
    assert caption.endswith("(best_of_grid runs them all).") and " measured in %, " in caption


def test_document_without_the_mark_at_its_end_is_refused():
    text = "a\n<!-- measured beside published -->\nb\n"
    with pytest.raises(ValueError, match="without <!-- end of measured beside published"):
        between_marks(text, "c")


def test_without_results_nothing_is_written(tmp_path):
    assert recorded_tables(tmp_path) == {} and measured_section("map", tmp_path) == ""
    assert front_table(["map-table1"], tmp_path) == "" and searches(tmp_path) == ""


def script():
    spec = importlib.util.spec_from_file_location("write_results", ROOT / "scripts" / "write_results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_documents_change_with_the_results(recorded, tmp_path):
    shutil.copytree(recorded[0], tmp_path / "results")
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/reproduction.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    before = {path: path.read_text() for path in (tmp_path / "README.md", tmp_path / "docs/reproduction.md")}
    texts = script().texts(tmp_path)
    assert texts.keys() == before.keys()
    for path, text in texts.items():
        assert "`map-table2` measured in %, the paper's number in brackets" in text and text != before[path]
    assert between_marks(texts[tmp_path / "README.md"], "") == between_marks(
        before[tmp_path / "README.md"], ""
    )
