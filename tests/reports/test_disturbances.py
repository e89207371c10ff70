"""The table of disturbances pairs each method with its clean twin, by seed and client."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from idiolect.records import Run
from idiolect.reports import disturbance_cells, disturbances_data, page_data, page_html, write_report
from idiolect.reports.judged_metric import ACCURACY

from .conftest import MakeRun

NOISE = ["label_noise(share=0.5, rate=0.5, kind=uniform)"]
CLEAN = [0.80, 0.60, 0.70, 0.50]
CHANGE = [-0.20, 0.00, -0.10, 0.02]


def scenes(make_run: MakeRun, seeds: int = 3, **spec: Any) -> list[Run]:
    """FedAvg and FedPer, clean and under noise that clients 0 and 2 have; FedPer loses half as much."""
    runs = []
    for label, scale in (("FedAvg", 1.0), ("FedPer", 0.5)):
        for seed in range(seeds):
            clean = [value + 0.01 * seed for value in CLEAN]
            noisy = [a + scale * b + 0.002 * (seed - 1) for a, b in zip(clean, CHANGE, strict=True)]
            base = {"rounds": 4, **spec}
            runs.append(make_run(label, seed, {(4, "before"): clean}, spec={**base, "under": []}))
            disturbed = {"disturbed": {NOISE[0]: [0, 2]}}
            told = {**base, "under": NOISE}
            runs.append(make_run(label, seed, {(4, "before"): noisy}, spec=told, **disturbed))
    return runs


def test_differences_are_paired_by_seed_and_client(make_run: MakeRun) -> None:
    table = disturbances_data(scenes(make_run)).set_index("method")
    assert list(table["under"]) == NOISE * 2
    assert table.loc["FedAvg", "clean"] == pytest.approx(0.66)
    assert table.loc["FedAvg", "difference"] == pytest.approx(-0.07)
    assert table.loc["FedPer", "difference"] == pytest.approx(-0.035)
    assert table.loc["FedAvg", "disturbed"] - table.loc["FedAvg", "clean"] == pytest.approx(-0.07)
    assert table.loc["FedAvg", "hit"] == pytest.approx(-0.15)
    assert table.loc["FedAvg", "spared"] == pytest.approx(0.01)
    assert (table["low"] < table["difference"]).all() and (table["difference"] < table["high"]).all()
    # a difference that seeds move by 0.002 has an interval of that size, not of the seeds' level
    assert (table["high"] - table["low"]).max() < 0.011
    assert (table["p_holm"] >= table["p"]).all() and table["seeds"].eq(3).all()


def test_nested_seeds_are_averaged_within_partitions_in_every_column(make_run: MakeRun) -> None:
    runs = []
    for data_seed, seed, clean, loss in (
        (7, 0, 0.9, 0.1),
        (7, 1, 0.7, 0.1),
        (8, 0, 0.3, 0.2),
        (9, 0, 0.5, 0.6),
    ):
        for under, level in (([], clean), (NOISE, clean - loss)):
            facts: dict[str, Any] = {"disturbed": {NOISE[0]: [0]}} if under else {}
            values = {(4, "before"): [level, level]}
            spec = {"rounds": 4, "under": under}
            runs.append(make_run("FedAvg", seed, values, spec=spec, data_seed=data_seed, **facts))
    (line,) = disturbances_data(runs).to_dict("records")
    assert line["design"] == "nested" and line["difference"] == pytest.approx(-0.3)
    assert (line["clean"], line["disturbed"]) == pytest.approx((1.6 / 3, 0.7 / 3))
    assert (line["hit"], line["spared"]) == pytest.approx((-0.3, -0.3))


def test_runs_without_a_clean_twin_are_left_out(make_run: MakeRun) -> None:
    runs = scenes(make_run, seeds=1)
    assert disturbances_data([run for run in runs if run.manifest["spec"]["under"]]).empty
    assert disturbances_data([run for run in runs if not run.manifest["spec"]["under"]]).empty
    other = make_run("FedAvg", 0, {(4, "before"): CLEAN}, spec={"rounds": 9, "under": NOISE})
    clean = [run for run in runs if not run.manifest["spec"]["under"]]
    assert disturbances_data([*clean, other]).empty


def test_a_twin_that_diverged_has_no_number_and_the_other_keeps_its_own(make_run: MakeRun) -> None:
    runs = scenes(make_run, seeds=1)
    lost = {"diverged": {"round": 2, "client": 1, "what": "upload/w", "moment": "training"}}
    spec = {"rounds": 4, "under": NOISE}
    runs[1] = make_run("FedAvg", 0, {}, spec=spec, disturbed={NOISE[0]: [0, 2]}, **lost)
    table = disturbances_data(runs).set_index("method")
    assert table["diverged"].to_dict() == {"FedAvg": "disturbed", "FedPer": ""}
    assert table.loc["FedAvg", "clean"] == pytest.approx(0.65) and math.isnan(
        table.loc["FedAvg", "difference"]
    )
    assert math.isnan(table.loc["FedAvg", "disturbed"]) and table.loc["FedPer", "difference"] < 0
    cells = disturbance_cells(table.reset_index(), ACCURACY)
    assert cells[1][:4] == ["FedAvg", "65.0", "diverged", "-"]


def test_means_are_of_the_seeds_that_both_have(make_run: MakeRun) -> None:
    runs = scenes(make_run)
    few = [run for run in runs if not run.manifest["spec"]["under"] or run.manifest["seed"] == 2]
    line = disturbances_data(few).set_index("method").loc["FedAvg"]
    assert line["seeds"] == 1 and line["clean"] == pytest.approx(0.67)
    assert line["disturbed"] - line["clean"] == pytest.approx(line["difference"])


def test_runs_of_before_disturbances_are_clean_twins(make_run: MakeRun) -> None:
    old = make_run("FedAvg", 0, {(4, "before"): CLEAN}, spec={"rounds": 4})
    new = make_run("FedAvg", 0, {(4, "before"): CLEAN}, spec={"rounds": 4, "under": ["dropout(rate=0.1)"]})
    (line,) = disturbances_data([old, new]).to_dict("records")
    assert line["difference"] == 0 and line["design"] == "one"
    assert line["hit"] != line["hit"] and line["low"] != line["low"]


def test_report_writes_the_table_in_all_formats(make_run: MakeRun, tmp_path: Path) -> None:
    write_report(scenes(make_run), tmp_path / "report", ["md", "csv", "tex"])
    text = (tmp_path / "report" / "disturbances.md").read_text()
    assert "| FedAvg | 66.0 | 59.0 | -7.0 | -7.5 to -6.5 | -15.0 | +1.0 |" in text
    assert f"under {NOISE[0]}" in text and "Seeds: 3." in text
    assert "-7.0" in (tmp_path / "report" / "disturbances.tex").read_text()
    assert (tmp_path / "report" / "disturbances.csv").read_text().startswith("scene,under,method,clean")
    clean = [run for run in scenes(make_run, seeds=1, local_epochs=3) if not run.manifest["spec"]["under"]]
    write_report(clean, tmp_path / "clean", ["md", "csv"])
    assert not (tmp_path / "clean" / "disturbances.md").exists()


def test_page_shows_the_table(make_run: MakeRun) -> None:
    runs = scenes(make_run)
    found = page_data(runs)["disturbances"]
    (table,) = found["tables"]
    assert table["under"] == NOISE[0] and table["header"][3] == "Difference"
    assert [method["label"] for method in table["methods"]] == ["FedAvg", "FedPer"]
    assert table["text"][0][:4] == ["66.0", "59.0", "-7.0", "-7.5 to -6.5"]
    assert len(found["rows"]) == 3
    assert "function disturbances()" in page_html(runs)
    assert page_data([run for run in runs if not run.manifest["spec"]["under"]])["disturbances"] is None
