"""Which rows a run records, and what they say."""

from __future__ import annotations

from idiolect.evaluation import METRICS
from idiolect.experiments import run

LOOP = {"engine": "loop", "device": "cpu"}


def test_every_measurement_carries_every_metric(tiny, tmp_path):
    found = run(tiny, evaluate_every=1, out=tmp_path, **LOOP)
    places = ["round", "client", "split", "predictor", "moment", "population"]
    assert found.rows.groupby(places)["metric"].apply(set).map(lambda seen: seen == set(METRICS)).all()
    assert not found.rows.duplicated([*places, "metric"]).any()
    assert (found.rows.query("metric == 'top5'")["value"] == 1).all()  # three classes


def test_manifest_describes_the_metrics(tiny, tmp_path):
    described = run(tiny, out=tmp_path, **LOOP).manifest["metrics"]
    assert described["accuracy"] == {"higher_is_better": True, "low": 0.0, "high": 1.0}
    assert described["loss"] == {"higher_is_better": False, "low": 0.0, "high": None}
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
