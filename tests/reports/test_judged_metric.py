"""Reports follow the metric that the runs are judged by; records that name none read as before."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from idiolect.errors import UserError
from idiolect.experiments.sweep.sweep import TrialResult, best_rows, trial_rows, with_best
from idiolect.records import RoundBuffer, RowBuffer, RowKind, Run
from idiolect.reports import (
    ACCURACY,
    JudgedMetric,
    change_data,
    clients_data,
    clients_heat_data,
    curves_data,
    curves_figure,
    judged_by,
    markdown_table,
    notes_of,
    page_data,
    plain_rows,
    ranks_data,
    special_pictures,
    summarise,
    targets_data,
    write_report,
)
from idiolect.reports.figures.clients import change_figure
from idiolect.reports.findings import findings_of
from idiolect.reports.run_groups import scenes_of
from idiolect.reports.scene_verdict import scene_verdict

RMSE = JudgedMetric("rmse", higher_is_better=False, is_share=False)
DESCRIBED = {
    "rmse": {"higher_is_better": False, "low": 0.0, "high": None, "unit": "target"},
    "r2": {"higher_is_better": True, "low": None, "high": 1.0, "unit": "number"},
    "accuracy": {"higher_is_better": True, "low": 0.0, "high": 1.0, "unit": "share"},
    "macro_f1": {"higher_is_better": True, "low": 0.0, "high": 1.0, "unit": "share"},
}
ERRORS = {"FedAvg": [30.0, 10.0, 20.0] + [15.0] * 8, "Ditto": [12.0, 8.0, 10.0] + [9.0] * 8}


def judged(metric: str, label: str, values: list[float], seed: int = 0, **manifest) -> Run:
    """A run of two rounds, in the first of which all values are twice as large."""
    rows, rounds = RowBuffer(), RoundBuffer()
    for number, factor in ((1, 2.0), (2, 1.0)):
        kind = RowKind("test", "global", "before", "all", metric)
        rows.extend(number, range(len(values)), kind, [factor * value for value in values])
        rows.add(number, -1, RowKind("server", "global", "before", "all", metric), factor * values[0])
        rounds.add(number, 0.5, 2, 1000, 1000, 0.7)
    facts = {"name": f"{label}-{metric}-{seed}", "method": label.lower(), "label": label, "seed": seed}
    told = {
        "headline": "global",
        "metrics": DESCRIBED,
        "primary_metric": metric,
        "class_counts": [[0, 0]] * 3,
    }
    return Run({**facts, **told, **manifest}, rounds.table().to_pandas(), rows.table().to_pandas())


@pytest.fixture
def errors() -> list[Run]:
    return [judged("rmse", label, values) for label, values in ERRORS.items()]


def scene_findings_of(runs):
    scenes = scenes_of(runs)
    (text,) = findings_of(scenes, {name: scene_verdict(groups) for name, groups in scenes.items()})
    return text


def test_table_names_the_metric_and_the_lowest_error_is_best(errors):
    summary = summarise(errors)
    rows = plain_rows(summary, judged_by(errors))
    assert rows[0][1:6] == ["Global RMSE", "Personalised RMSE", "Predictor", "SD RMSE", "Worst tenth RMSE"]
    assert summary["personal_rmse"].tolist() == [np.mean(ERRORS[name]) for name in ("Ditto", "FedAvg")]
    assert summary["worst_tenth"].tolist() == [11.0, 25.0]  # of the two largest of eleven
    text = markdown_table(summary, metric=judged_by(errors))
    assert "9.273" in text and "**" not in text and "%" not in text.splitlines()[0]
    assert scene_findings_of(errors).startswith(
        "One run each: no verdict. Ditto has the best mean RMSE, 9.273,"
    )


def test_figures_are_in_the_unit_of_the_metric(errors):
    assert clients_data(errors)["rmse"].tolist() == [*ERRORS["FedAvg"], *ERRORS["Ditto"]]
    heat = clients_heat_data(errors)
    assert heat["panel"].iloc[0] == "Final RMSE of every client" and heat["value"].iloc[0] == 30
    change = change_data(errors)
    assert change["value"].tolist() == [b - a for a, b in zip(*ERRORS.values(), strict=True)]
    (axes,) = change_figure(change, metric=RMSE).axes
    assert axes.get_title(loc="left").endswith("0 of 11 clients lose")
    assert axes.get_xlabel() == "Change of RMSE"


def test_a_target_of_an_error_is_reached_from_above(errors):
    rounds = targets_data(errors, [18.0]).query("panel == 'Rounds'").set_index("line")["value"]
    assert rounds.to_dict() == {"FedAvg": 2.0, "Ditto": 2.0}
    assert targets_data(errors, [5.0]).empty


def test_report_of_a_regression_has_no_partition_and_draws_the_rest(errors, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("idiolect.reports.report_files.image", lambda figure, kind: b"drawn")
        names = {path.name for path in write_report(errors, tmp_path, ("svg", "csv", "md"), special=True)}
    assert {"curves.svg", "clients.svg", "scatter.svg", "table.md", "users.md", "heat-map.svg"} <= names
    assert not any(name.startswith("partition") for name in names)
    assert curves_figure(curves_data(errors), RMSE).axes[0].get_ylabel() == "RMSE"
    assert (tmp_path / "curves.csv").read_text().startswith("method,panel,moment,round,rmse,")


def test_page_begins_with_the_metric_and_leaves_the_partition_out(errors):
    (found,) = page_data(errors)["scenes"]
    first = found["metrics"][0]
    assert first == {"name": "rmse", "title": "RMSE", "higher": False, "percent": False}
    assert found["judged"]["word"] == "RMSE" and found["partitions"] == []


def test_ranks_put_the_lowest_error_first():
    scenes = [
        judged("rmse", label, [value + shift], dataset=scene)
        for shift, scene in enumerate(("a", "b", "c"))
        for label, value in (("FedAvg", 3.0), ("Ditto", 1.0), ("Local", 2.0))
    ]
    assert ranks_data(scenes).loc["a"].to_dict() == {"FedAvg": 3.0, "Ditto": 1.0, "Local": 2.0}
    assert page_data(scenes)["ranks"]["methods"] == ["Ditto", "Local", "FedAvg"]


def test_runs_judged_by_different_metrics_are_refused_together(errors):
    other = judged("accuracy", "FedAvg", [0.5], spec_hash="other")
    with pytest.raises(
        UserError, match=r"is judged by RMSE and FedAvg-accuracy-0 by accuracy.*report them apart"
    ):
        summarise([*errors, other])


def test_clients_without_a_defined_value_are_left_out_and_counted():
    runs = [judged("macro_f1", "FedAvg", [0.5, math.nan, 1.0])]
    assert notes_of(runs) == ["Macro F1 is not defined for 1 of 3 clients, whom means leave out"]
    summary = summarise(runs)
    assert summary["personal_macro_f1"].tolist() == [0.75] and summary["clients"].tolist() == [2]
    assert plain_rows(summary, judged_by(runs))[0][2] == "Personalised macro F1 %"


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [(), ("svg",)], ids=["numbers", "figures"])
def test_records_that_name_no_metric_give_the_same_tables_and_figures(
    make_run: Callable[..., Run], tmp_path, drawn
):
    old = [
        make_run(label, seed, {(r, "after"): [0.1 * r, 0.5, level] for r in (1, 2, 3, 4)}, {4: level})
        for label, level in (("FedAvg", 0.6), ("MAP", 0.8))
        for seed in (0, 1)
    ]
    described = {"accuracy": DESCRIBED["accuracy"]}
    new = [
        run._replace(manifest={**run.manifest, "primary_metric": "accuracy", "metrics": described})
        for run in old
    ]
    assert judged_by(old) == judged_by(new) == ACCURACY
    for place, runs in (("old", old), ("new", new)):
        write_report(runs, tmp_path / place, ("csv", "md", "tex", *drawn), special=bool(drawn))
    before, after = (
        {p.name: p.read_bytes() for p in (tmp_path / place).iterdir()} for place in ("old", "new")
    )
    assert before == after
    assert b"Personalised %" in before["table.md"]
    assert before["table.csv"].startswith(
        b"scene,method,seeds,design,predictor,reading,clients,never_trained,global_accuracy,personal_accuracy,"
    )
    assert set(special_pictures(old)) == set(special_pictures(new))


def test_sweep_chooses_the_lowest_validation_error():
    tried = [
        TrialResult("a", "x=1", "a", 1, 5.0, 9.0, 3.0, metric=RMSE),
        TrialResult("a", "x=2", "a", 1, 2.5, 4.0, 3.0, metric=RMSE),
        TrialResult("a", "x=3", "a", failed="no"),
    ]
    found = with_best(tried)
    assert [one.best for one in found] == [False, True, False]
    assert trial_rows(found)[0][2:5] == ["Validation RMSE", "Personalised RMSE", "Global RMSE"]
    assert best_rows(found)[1] == ["a", "x=2", "2.5", "4", "3", "2", "6.5", "9"]
    with pytest.raises(UserError, match="judged by RMSE and by accuracy"):
        with_best([tried[0], replace(tried[1], metric=ACCURACY)])
