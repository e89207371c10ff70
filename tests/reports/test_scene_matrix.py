"""Methods against scenes: what is bold, and how it is said."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd
import pytest

from idiolect.records import Run
from idiolect.reports import page_data
from idiolect.reports.page import page_data as page_module
from idiolect.reports.run_groups import scenes_of
from idiolect.reports.scene_matrix import SceneMatrix, matrix_table, matrix_words, scene_matrix
from idiolect.reports.scene_verdict import scene_verdict

METRICS = {
    "accuracy": {"higher_is_better": True, "low": 0.0, "high": 1.0},
    "loss": {"higher_is_better": False, "low": 0.0, "high": None},
}
LEVELS = {"digits": {"A": 0.80, "B": 0.801, "C": 0.7}, "letters": {"A": 0.6, "B": 0.5, "C": 0.4}}


def _runs(make_run: Any, seeds: int) -> list[Run]:
    """In digits, A and B cannot be told apart; in letters, A is alone in front."""
    return [
        make_run(
            label,
            seed,
            {(1, "after"): [value + 0.01 * seed * (-1) ** place, value]},
            dataset=dataset,
            metrics=METRICS,
        )
        for dataset, levels in LEVELS.items()
        for place, (label, value) in enumerate(levels.items())
        for seed in range(seeds)
    ]


def _matrix(runs: list[Run]) -> SceneMatrix:
    return scene_matrix({name: scene_verdict(groups) for name, groups in scenes_of(runs).items()})


def _bold(line: str, mark: str) -> list[bool]:
    return [mark in cell for cell in line.replace("&", "|").strip("| ").split("|")[1:3]]


def test_whole_group_of_the_leader_is_bold(make_run) -> None:
    runs = _runs(make_run, 4)
    found, expected = _matrix(runs), {"A": [True, True], "B": [True, False], "C": [False, False]}
    assert found.leading.T.to_dict("list") == expected
    for kind, mark in (("md", "**"), ("tex", r"\textbf")):
        lines = matrix_table(found, kind).splitlines()
        rows = {
            label: line for line in lines for label in expected if line.lstrip("| ").startswith(f"{label} ")
        }
        assert {label: _bold(line, mark) for label, line in rows.items()} == expected
        assert "cannot be told apart from the best are bold." in "\n".join(lines)
    table = pd.read_csv(io.StringIO(matrix_table(found, "csv")))
    assert table.groupby("method")["leading"].apply(list).to_dict() == expected
    page = page_data(runs)["matrix"]
    assert dict(zip([line["label"] for line in page["methods"]], page["leading"], strict=True)) == expected


def test_nothing_is_bold_without_a_verdict(make_run) -> None:
    found = _matrix(_runs(make_run, 2))
    assert not found.leading.to_numpy().any()
    assert "**" not in matrix_table(found, "md") and "textbf" not in matrix_table(found, "tex")
    assert "Nothing is bold" in matrix_words(found)


def test_scene_without_a_verdict_stands_beside_one_that_has_it(make_run) -> None:
    runs = [
        run for run in _runs(make_run, 4) if run.manifest["dataset"] == "digits" or not run.manifest["seed"]
    ]
    found = _matrix(runs)
    assert found.leading.any().to_dict() == {"digits": True, "letters": False}
    assert "where none is bold, the scene has no verdict" in matrix_words(found)


def test_metrics_that_nobody_tested_are_not_compared(make_run, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run for run in _runs(make_run, 3) if run.manifest["dataset"] == "digits"]
    for most, compared in ((3, True), (2, False)):
        monkeypatch.setattr(page_module, "MOST_COMPARED", most)
        (scene,) = page_data(runs)["scenes"]
        assert scene["measured"]["accuracy"]["compared"] is True
        assert scene["measured"]["loss"]["compared"] is compared
        assert bool(scene["measured"]["loss"]["pairs"]) is compared
