"""Calibration, confusions and costs on the page, from tables that newer records hold."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from idiolect.records import Run
from idiolect.reports import calibration_figure, page_data, special_pictures, write_report
from idiolect.reports.page.recorded_parts import MOST_CLASSES

KIND = {
    "round": 1,
    "client": 0,
    "split": "test",
    "predictor": "companion",
    "moment": "after",
    "population": "all",
}
MACHINE = {"processor": "one"}


def recorded(run: Run, bytes_up: int, flops: float | None, classes: int = 2) -> Run:
    front = {"run": run.manifest["name"]}
    costs = pd.DataFrame({"client": [0, 1], "population": "all", "rounds": [2, 0], "steps": [10, 0]}).assign(
        flops=[flops, 0.0 if flops is not None else None], bytes_down=[100, 0], bytes_up=[bytes_up, 0]
    )
    bins = pd.DataFrame([{**front, **KIND, "bin": 11, "count": 40, "confidence": 30.0, "correct": 20}])
    confusion = pd.DataFrame(
        [{**front, **KIND, "truth": t, "predicted": 0, "count": 3} for t in range(classes)]
    )
    return run._replace(costs=costs, calibration=bins, confusion=confusion)


@pytest.fixture
def pair(make_run) -> list[Run]:
    values = {"A": 0.9, "B": 0.7}
    return [
        make_run(label, 0, {(1, "after"): [value, 0.1]}, hardware=MACHINE, seconds=3.0)
        for label, value in values.items()
    ]


def test_counts_become_a_diagram_a_matrix_and_costs(pair: list[Run]) -> None:
    (scene,) = page_data([recorded(pair[0], 900, 5e9), recorded(pair[1], 500, 1e9)])["scenes"]
    first = scene["reliability"][0]
    assert first["samples"] == 40 and first["ece"] == pytest.approx(0.25)
    assert first["bins"]["accuracy"] == [0.5] and first["bins"]["confidence"] == [0.75]
    assert first["if_calibrated"] < first["ece"]
    assert scene["confusion"][0] == {"classes": ["0", "1"], "counts": [[3, 0], [3, 0]]}
    spent = scene["spending"]["methods"][0]
    assert (spent["bytes"], spent["bytes_up_client"], spent["steps_most"], spent["flops"]) == (
        1000,
        450,
        10,
        5e9,
    )
    assert [front["key"] for front in scene["spending"]["fronts"]] == ["bytes", "bytes_up", "flops"]
    assert scene["spending"]["fronts"][0]["front"] == [1, 0]
    assert scene["costs"][0]["never"] == 1
    line = scene["measured"]["accuracy"]
    assert line["leaderboard"][0]["worst"] == line["spread"][0]["worst_tenth"] == pytest.approx(0.9)


def test_costly_and_worse_methods_are_off_the_front(pair: list[Run]) -> None:
    (scene,) = page_data([recorded(pair[0], 500, 1e9), recorded(pair[1], 900, 5e9)])["scenes"]
    assert all(front["front"] == [0] for front in scene["spending"]["fronts"][:2])


def test_seconds_of_two_machines_are_not_compared(pair: list[Run]) -> None:
    other = pair[1]._replace(manifest={**pair[1].manifest, "hardware": {"processor": "two"}, "seconds": 4.0})
    (scene,) = page_data([recorded(pair[0], 900, None), recorded(other, 500, None)])["scenes"]
    assert [front["key"] for front in scene["spending"]["fronts"]] == ["bytes", "bytes_up"]
    assert scene["spending"]["one_machine"] is False
    assert all(math.isnan(line["seconds"]) for line in scene["spending"]["methods"])


def test_every_recorded_cost_of_one_machine_has_a_front(pair: list[Run]) -> None:
    runs = []
    for size, run in enumerate(pair, 1):  # the second is worse and costs more
        taken = {"peak_memory_bytes": 1e9 * size, "peak_gpu_bytes": None, "energy_joules": 50.0 * size}
        run = run._replace(manifest={**run.manifest, "resources": taken, "seconds": 3.0 * size})
        run = recorded(run, 500 * size, 1e9 * size)
        runs.append(run._replace(costs=run.costs.assign(steps=[10 * size, 0], bytes_down=[100 * size, 0])))
    (scene,) = page_data(runs)["scenes"]
    fronts = {front["key"]: front["front"] for front in scene["spending"]["fronts"]}
    keys = ["bytes", "bytes_down", "bytes_up", "steps_client", "flops", "seconds", "memory", "joules"]
    assert fronts == {key: [0] for key in keys}
    assert [line["steps_client"] for line in scene["spending"]["methods"]] == [5, 10]


def test_old_records_have_none_of_it(pair: list[Run]) -> None:
    (scene,) = page_data(pair)["scenes"]
    assert [scene[key] for key in ("reliability", "confusion", "spending", "newcomers")] == [None] * 4


def test_matrices_of_many_classes_are_left_out(pair: list[Run]) -> None:
    (scene,) = page_data([recorded(run, 1, None, classes=MOST_CLASSES + 1) for run in pair])["scenes"]
    assert scene["confusion"] is None and scene["reliability"] is not None


def test_calibration_files_are_of_all_samples_together(pair: list[Run], tmp_path: Path) -> None:
    runs = [recorded(run, 1, None) for run in pair]
    bins = pd.concat(
        [runs[1].calibration.assign(client=c, count=2, confidence=1.4, correct=c) for c in (0, 1, 2)]
    )
    runs[1] = runs[1]._replace(calibration=bins)  # few samples: 0, 1 and 2 of 2 right
    write_report(runs, tmp_path, ["md", "csv", "png"], special=True)
    table = pd.read_csv(tmp_path / "calibration.csv").set_index("method")
    assert table["ece"].to_dict() == pytest.approx({"A": 0.25, "B": 0.2})
    assert table["client_ece"]["B"] == pytest.approx((1.4 + 0.4 + 0.6) / 6)
    assert table["if_calibrated"]["A"] < 0.07 and table["error"]["A"] == pytest.approx(0.0564**0.5, rel=0.01)
    text = (tmp_path / "calibration.md").read_text()
    assert (
        "| A | 40 | 25.0 |" in text and "- B: with about 2 test samples each" in text and "- A:" not in text
    )
    drawn = special_pictures(runs)
    assert drawn["calibration"].figure.axes[0].get_title(loc="left") == "ECE of all samples"
    assert "few samples" in drawn["calibration"].figure.get_suptitle()
    points = drawn["reliability"].figure.axes[0].lines[1].get_xydata().tolist()
    assert points == [[75, 50]] and (tmp_path / "reliability.png").is_file()


def test_calibration_of_old_records_has_a_caveat() -> None:
    data = pd.DataFrame([("ECE", "A", "", 0.2, 0.1)], columns=["panel", "line", "x", "value", "sd"])
    assert "few test samples" in calibration_figure(data).get_suptitle()
