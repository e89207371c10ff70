"""Sweeps: what is tried, and that validation data alone choose."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from idiolect.errors import UserError
from idiolect.experiments.sweep.axes import parse_axis, spaces_of
from idiolect.experiments.sweep.best_settings import read_sweep
from idiolect.experiments.sweep.sweep import (
    TrialResult,
    best_rows,
    sweep,
    trial_rows,
    trial_scores,
    with_best,
)
from idiolect.records import SCENE_SETTINGS, Run, read_runs

LOOP = {"engine": "loop", "device": "cpu"}


def _trials(methods, *texts, tried=None, draws=0, seed=0):
    spaces = spaces_of(methods, [parse_axis(text) for text in texts], tried or {}, draws > 0)
    found = [space.drawn_trials(draws, seed) if draws else space.all_trials() for space in spaces]
    return [trial for trials in found for trial in trials]


def test_grid_is_every_combination_of_a_methods_own_axes_and_the_scenes():
    found = _trials(["map", "fedavg"], "map.alpha=0.5,0.9", "learning_rate=0.01,0.1", "map.transfer=kd")
    assert [(t.method, t.settings["learning_rate"]) for t in found] == [
        ("map(alpha=0.5, transfer=kd)", 0.01),
        ("map(alpha=0.5, transfer=kd)", 0.1),
        ("map(alpha=0.9, transfer=kd)", 0.01),
        ("map(alpha=0.9, transfer=kd)", 0.1),
        ("fedavg", 0.01),
        ("fedavg", 0.1),
    ]


def test_options_in_the_text_stay_and_parts_can_be_varied():
    (one,) = _trials(["map(rule=freq)"], "map.alpha=0.5")
    assert one.method == "map(rule=freq, alpha=0.5)"
    (one,) = _trials(["fedavg + restricted_softmax(rule=freq)"], "restricted_softmax.alpha=0.5")
    assert one.method == "fedavg + restricted_softmax(rule=freq, alpha=0.5)"
    (one,) = _trials(["persfl"], "persfl.lambdas=(0.0, 0.5)")
    assert one.method == "persfl(lambdas=(0.0, 0.5))"


def test_known_settings_are_combined_with_the_axes():
    tried = {"ditto": [{"weight": 0.1}, {"weight": 0.01}]}
    found = _trials(["ditto", "fedavg"], "momentum=0.0,0.9", tried=tried)
    assert [t.method for t in found] == ["ditto(weight=0.1)"] * 2 + ["ditto(weight=0.01)"] * 2 + [
        "fedavg"
    ] * 2


def test_draws_lie_in_their_ranges_and_repeat_with_the_seed():
    texts = [
        "learning_rate=1e-4..1e-1:log",
        "map.alpha=0.25..0.75",
        "batch_size=8..16",
        "map.transfer=kd,mmd",
    ]
    found = _trials(["map"], *texts, draws=200, seed=5)
    rates = np.array([t.settings["learning_rate"] for t in found])
    assert rates.min() >= 1e-4 and rates.max() <= 1e-1
    assert 0.4 < (rates < np.sqrt(1e-5)).mean() < 0.6
    assert {t.settings["batch_size"] for t in found} == set(range(8, 17))
    alphas = np.array([t.options["alpha"] for t in found])
    assert alphas.min() >= 0.25 and alphas.max() <= 0.75 and 0.45 < alphas.mean() < 0.55
    assert {t.options["transfer"] for t in found} == {"kd", "mmd"}
    assert found == _trials(["map"], *texts, draws=200, seed=5)
    assert found != _trials(["map"], *texts, draws=200, seed=6)


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("alpha", "cannot read 'alpha'; write key=a,b,c"),
        ("map.alpha=", "cannot read"),
        ("valid=0.1,0.2", "valid cannot be varied in a sweep: its trials are compared on the same data"),
        ("seed=0,1", "seed cannot be varied"),
        ("learnin_rate=1", "there is no setting 'learnin_rate'; known: .*; did you mean learning_rate"),
        ("learning_rate=0.1..0.01", "cannot read the range"),
        ("learning_rate=0..1:log", "cannot read the range"),
        ("learning_rate=0.1..1:lin", "cannot read the range"),
        ("map.transfer=kd..mmd", "cannot read the range"),
    ],
)
def test_axis_that_cannot_be_read_is_refused(text, piece):
    with pytest.raises(UserError, match=piece):
        parse_axis(text)


@pytest.mark.parametrize(
    ("methods", "texts", "piece"),
    [
        (["fedavg"], ["map.alpha=0.5"], "map.alpha varies map, which is not among the methods: fedavg"),
        (["map"], ["map.alpha=0.1..0.9"], "has a range, which only a random sweep draws from"),
        (["map"], ["map.alpha=0.1", "map.alpha=0.9"], "the same key is varied twice"),
    ],
)
def test_trials_that_make_no_sense_are_refused(methods, texts, piece):
    with pytest.raises(UserError, match=piece):
        _trials(methods, *texts)


@pytest.mark.parametrize("key", ["method", "seed", "data_seed", "score_valid", *SCENE_SETTINGS])
def test_nothing_that_changes_data_seeds_or_network_is_varied(key):
    with pytest.raises(UserError, match=f"^{key} cannot be varied in a sweep"):
        parse_axis(f"{key}=1,2")


def test_sweep_of_too_many_trials_is_refused(tmp_path):
    vary = [f"learning_rate={','.join(['0.1'] * 101)}", f"momentum={','.join(['0.1'] * 100)}"]
    with pytest.raises(UserError, match="10100 trials, more than 10000"):
        sweep(["map"], vary=vary, out=tmp_path, **LOOP)
    assert not list(tmp_path.iterdir())


def test_variants_of_a_method_have_a_name_a_budget_and_a_best_each(tiny, tmp_path):
    names = ["local", "ditto(weight=0.1)", "ditto(weight=1.0)"]
    rates = ["learning_rate=0.01,0.1"]
    done = sweep(names, vary=rates, experiment=tiny, out=tmp_path, quiet=True, **LOOP)
    assert list(done.best) == names and [row[0] for row in best_rows(done.tried)[1:]] == names
    assert "Equal budget: 2 trials of each method, in 4 rounds." in (done.folder / "sweep.md").read_text()
    found = read_sweep(done.folder)
    assert [one.name for one in found.methods] == names
    (one,) = found.chosen(["ditto(weight=1.0)"])
    assert one.experiment.method == "ditto(weight=1.0)" and "of 2 (grid search, 4 rounds)" in one.note
    assert one.experiment.learning_rate == done.best["ditto(weight=1.0)"].varied["learning_rate"]


@pytest.mark.parametrize(
    ("second", "vary"), [("map()", "momentum=0.0,0.9"), ("map(alpha=0.3)", "map.alpha=0.1,0.9")]
)
def test_method_given_twice_is_refused(second, vary, tmp_path):
    with pytest.raises(UserError) as caught:
        sweep(["map", second], vary=[vary], out=tmp_path, **LOOP)
    assert str(caught.value) == f"map and {second} are one method; give it once"
    assert not list(tmp_path.iterdir())


def test_best_is_the_highest_on_validation_whatever_the_test_says():
    tried = [
        TrialResult("a", "1", "a", valid=0.5, test=0.9),
        TrialResult("a", "2", "a", valid=0.7, test=0.1),
        TrialResult("a", "3", "a", valid=0.7, test=0.8),
        TrialResult("a", "4", "a", failed="no"),
        TrialResult("b", "1", "b", failed="no"),
    ]
    assert [one.best for one in with_best(tried)] == [False, True, False, False, False]


def test_table_keeps_the_best_and_all():
    tried = with_best(
        [
            TrialResult("a", "x=1", "a", 1, 0.5, 0.9, 0.3),
            TrialResult("a", "x=2", "a", 1, 0.7, 0.1),
            TrialResult("a", "x=3", "a", failed="no"),
        ]
    )
    assert trial_rows(tried)[1:] == [
        ["a", "x=1", "50.00", "90.00", "30.00", ""],
        ["a", "x=2", "70.00", "10.00", "-", "best"],
        ["a", "x=3", "-", "-", "-", "refused"],
    ]
    assert best_rows(tried)[1:] == [["a", "x=2", "70.00", "10.00", "-", "2", "50.00", "10.00"]]


@pytest.mark.parametrize("method", ["fedavg", "fedper", "superfed_mm", "fedavg_lu"])
def test_validation_accuracy_is_the_headlines_on_the_validation_split(method, tiny, tmp_path):
    done = sweep([method], vary=["learning_rate=0.05,0.1"], experiment=tiny, out=tmp_path, **LOOP)
    for one, run in zip(
        sorted(done.tried, key=lambda t: t.setting),
        sorted(read_runs(tmp_path), key=lambda r: r.manifest["spec"]["learning_rate"]),
        strict=True,
    ):
        headline = run.manifest["headline"]
        name = run.manifest["choices"].get(headline, headline)
        moment = "end" if method == "fedavg_lu" else "before"
        rows = run.rows[
            (run.rows["predictor"] == name) & (run.rows["round"] == 2) & (run.rows["moment"] == moment)
        ]
        rows = rows[(rows["metric"] == "accuracy") & (rows["population"] == "all")]
        assert one.valid == pytest.approx(rows[rows["split"] == "valid"]["value"].mean())
        assert one.test == pytest.approx(rows[rows["split"] == "test"]["value"].mean())


def test_validation_accuracy_at_the_end_of_the_run_goes_first():
    columns = ["round", "client", "split", "predictor", "moment", "population", "metric", "value"]
    same = ("companion", "all", "accuracy")
    rows = [
        (2, client, split, same[0], moment, *same[1:], value)
        for client in (0, 1)
        for split, moment, value in (("valid", "before", 0.1), ("valid", "end", 0.6), ("test", "end", 0.9))
    ]
    run = Run({"name": "r", "headline": "companion"}, pd.DataFrame(), pd.DataFrame(rows, columns=columns))
    found = trial_scores(run)
    assert (found.valid, found.test) == (0.6, 0.9) and np.isnan(found.server)
    with pytest.raises(UserError, match="run r was not scored on validation data"):
        trial_scores(run._replace(rows=run.rows[run.rows["split"] == "test"]))


def test_sweep_without_validation_data_is_refused(tiny, tmp_path):
    with pytest.raises(
        UserError, match="a sweep chooses on validation data and this experiment holds none out"
    ):
        sweep(
            ["fedavg"], vary=["momentum=0.0,0.9"], experiment=replace(tiny, valid=0.0), out=tmp_path, **LOOP
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("asked", [{}, {"methods": ["fedavg"]}, {"vary": ["momentum=0.0"]}])
def test_sweep_of_nothing_is_refused(asked, tmp_path):
    with pytest.raises(UserError, match="a sweep needs methods, seeds, and something to vary"):
        sweep(out=tmp_path, **asked)


def test_refused_trial_is_kept_and_the_others_go_on_and_are_not_run_again(tiny, tmp_path):
    asked = {"vary": ["learning_rate=0.1,1e30"], "experiment": tiny, "out": tmp_path, "seeds": (0, 1), **LOOP}
    done = sweep(["fedavg"], **asked)
    good, bad = done.tried
    assert good.best and good.seeds == 2 and "not finite" in bad.failed and not bad.best
    rows = list(csv.DictReader((done.folder / "sweep.csv").read_text().splitlines()))
    assert [row["best"] for row in rows] == ["True", "False"] and "not finite" in rows[1]["failed"]
    assert "not finite" in (done.folder / "sweep.md").read_text()
    assert (done.folder / "sweep.png").read_bytes().startswith(b"\x89PNG")
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("fedavg*/manifest.json")}
    again = sweep(["fedavg"], **asked)
    assert again.folder == done.folder
    assert stamps == {path: path.stat().st_mtime_ns for path in tmp_path.glob("fedavg*/manifest.json")}


def test_preset_grid_brings_its_methods(tiny, tmp_path):
    done = sweep(preset_grid="fedper", experiment=tiny, out=tmp_path, **LOOP)
    assert [one.setting for one in done.tried] == ["count=1", "count=2", "count=3", "count=4"]
    assert [bool(one.failed) for one in done.tried] == [False, False, False, True]
    assert "the network has 3 units" in done.tried[3].failed
    assert done.best["fedper"].valid == max(one.valid for one in done.tried if not one.failed)
