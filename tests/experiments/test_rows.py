"""Which rows a run records, and what they say."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest

from idiolect.errors import UserError
from idiolect.evaluation import METRICS
from idiolect.experiments import Silent, run

LOOP = {"engine": "loop", "device": "cpu"}


def test_every_measurement_carries_every_metric(tiny, tmp_path):
    found = run(tiny, evaluate_every=1, out=tmp_path, **LOOP)
    places = ["round", "client", "split", "predictor", "moment", "population"]
    assert found.rows.groupby(places)["metric"].apply(set).map(lambda seen: seen == set(METRICS)).all()
    assert not found.rows.duplicated([*places, "metric"]).any()
    assert (found.rows.query("metric == 'top5'")["value"] == 1).all()  # three classes


def test_manifest_describes_the_metrics(tiny, tmp_path):
    described = run(tiny, out=tmp_path, **LOOP).manifest["metrics"]
    assert described["accuracy"] == {"higher_is_better": True, "low": 0.0, "high": 1.0, "unit": "share"}
    assert described["loss"] == {"higher_is_better": False, "low": 0.0, "high": None, "unit": "number"}
    assert list(described) == list(METRICS)


def test_calibration_per_batch_is_recorded_where_asked_beside_the_whole(tiny, tmp_path):
    asked = run(tiny, calibration="per_batch", batch_size=2, out=tmp_path, **LOOP)
    plain = run(tiny, batch_size=2, out=tmp_path, **LOOP)
    extra = {"ece_per_batch", "mce_per_batch"}
    assert set(asked.rows["metric"]) - set(plain.rows["metric"]) == extra
    assert set(asked.manifest["metrics"]) - set(METRICS) == extra
    rest = asked.rows[~asked.rows["metric"].isin(extra)].reset_index(drop=True)
    assert rest["value"].tolist() == plain.rows["value"].tolist()
    means = asked.rows.query("split == 'test'").groupby("metric")["value"].mean()
    assert means["mce_per_batch"] < means["mce"]  # a mean of maxima against the maximum


def test_newcomers_are_scored_apart_and_kept_out_of_all_counts(tiny, tmp_path):
    found = run(tiny, newcomers=1, participation_rate=0.34, observe="always", out=tmp_path, **LOOP)
    assert found.rounds["cohort"].tolist() == [1, 1]  # a third of three
    assert len(found.manifest["newcomers"]) == 1 and len(found.manifest["class_counts"]) == 4
    assert (
        found.manifest["never_selected"]
        == 3 - found.rows.query("population == 'selected'")["client"].nunique()
    )
    who = found.rows.groupby("population")["client"].apply(lambda clients: set(clients) - {-1}).to_dict()
    assert who["all"] == {0, 1, 2} and who["new"] == {3} and 3 not in who["selected"]
    assert set(found.rows.query("population == 'new'")["moment"]) == {"before", "after"}


def test_newcomers_choice_is_named_apart(tiny, tmp_path):
    found = run(replace(tiny, method="superfed_mm"), newcomers=2, out=tmp_path, **LOOP)
    picked = set(found.manifest["choices"])
    assert {"mix(validated) of newcomers", "mix(oracle) of newcomers"} == {
        n for n in picked if "newcomers" in n
    }
    assert any(note.startswith("mix(validated) of newcomers is mix(") for note in found.manifest["notes"])


def test_too_many_newcomers_are_refused_before_training(tiny, tmp_path):
    with pytest.raises(
        UserError, match="newcomers is 4 but there are 4 clients; leave at least one to train"
    ):
        run(tiny, newcomers=4, out=tmp_path, **LOOP)


class Interrupter(Silent):
    """Stops the run when its rounds are done and its end is not."""

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        if rounds_done == 2:
            raise KeyboardInterrupt


def test_resumed_run_lets_newcomers_join_once(tiny, tmp_path):
    asked = replace(tiny, method="superfed_mm", newcomers=1)
    with pytest.raises(KeyboardInterrupt):
        run(asked, out=tmp_path / "a", checkpoint_every=1, watcher=Interrupter(), **LOOP)
    resumed = run(asked, out=tmp_path / "a", checkpoint_every=1, resume=True, **LOOP)
    whole = run(asked, out=tmp_path / "b", **LOOP)
    assert resumed.rows.equals(whole.rows)
    assert resumed.manifest["choices"] == whole.manifest["choices"]


def test_resumed_run_counts_the_seconds_of_its_earlier_rounds(tiny, tmp_path, monkeypatch):
    clock = SimpleNamespace(perf_counter=itertools.count(0, 1000).__next__)
    with monkeypatch.context() as slow:
        slow.setattr("idiolect.experiments.rounds.round.time", clock)
        with pytest.raises(KeyboardInterrupt):
            run(tiny, out=tmp_path, checkpoint_every=1, watcher=Interrupter(), **LOOP)
    resumed = run(tiny, out=tmp_path, checkpoint_every=1, resume=True, **LOOP)
    assert 1000 <= resumed.manifest["seconds"] < 2000


def test_named_metrics_are_recorded_beside_those_of_the_task(tiny, tmp_path):
    asked = run(tiny, metrics="auroc", out=tmp_path, **LOOP)
    plain = run(tiny, out=tmp_path, **LOOP)
    assert set(asked.rows["metric"]) - set(plain.rows["metric"]) == {"auroc"}
    rest = asked.rows[asked.rows["metric"] != "auroc"]
    assert rest["value"].tolist() == plain.rows["value"].tolist()
    assert asked.manifest["primary_metric"] == "accuracy" and asked.manifest["task"] == "classification"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"metrics": "auorc"}, "did you mean auroc"),
        ({"metrics": "accuracy, rmse"}, "metrics names rmse, which serves regression and not classification"),
    ],
)
def test_metrics_that_cannot_be_measured_are_refused_before_training(tiny, tmp_path, settings, sentence):
    with pytest.raises(UserError, match=sentence):
        run(tiny, out=tmp_path, **settings, **LOOP)
    assert not list(tmp_path.iterdir())
