"""Calibration from counts: by hand, and in simulations where the true error is known."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from idiolect.errors import UserError
from idiolect.records import CountBuffer, CountKind, Run
from idiolect.statistics import (
    calibration_bins,
    calibration_of,
    confusion_matrix,
    debiased_squared_error,
    ece_if_calibrated,
    few_samples,
    pooled_ece,
    reliability,
)

BINS = 15


def simulated(clients: int, samples: int, gap: float, seed: int = 0) -> pd.DataFrame:
    """Bins by client of a model that is right with its confidence minus ``gap``."""
    random = np.random.default_rng(seed)
    confidence = random.uniform(0.5, 1.0, (clients, samples))
    hits = random.random((clients, samples)) < confidence - gap
    place = np.minimum((np.ceil(confidence * BINS) - 1).astype(int), BINS - 1)
    owner = np.repeat(np.arange(clients), samples)
    cells = pd.DataFrame(
        {
            "client": owner,
            "bin": place.ravel(),
            "count": 1,
            "confidence": confidence.ravel(),
            "correct": hits.ravel(),
        }
    )
    return cells.groupby(["client", "bin"], as_index=False).sum()


def pooled(cells: pd.DataFrame) -> pd.DataFrame:
    return cells.groupby("bin", as_index=False)[["count", "confidence", "correct"]].sum()


def as_run(cells: pd.DataFrame, moment: str = "before", predictor: str = "own") -> Run:
    buffer = CountBuffer()
    kind = CountKind("test", predictor, moment, "all")
    rows = cells[["client", "bin", "count", "confidence", "correct"]].to_numpy(float)
    buffer.extend("calibration", 4, kind, rows)
    confusion = np.array([[0, 0, 0, 5], [0, 0, 1, 2], [1, 1, 1, 3], [1, 2, 0, 1]], float)
    buffer.extend("confusion", 4, kind, confusion)
    tables = {name: table.to_pandas().assign(run="run") for name, table in buffer.tables().items()}
    manifest = {"name": "run", "headline": "own", "class_names": ["cat", "dog", "owl"]}
    return Run(manifest, pd.DataFrame(), pd.DataFrame(), **tables)


def test_error_of_a_calibrated_model_is_about_nothing():
    """400 clients with 40 samples: their own ECE is all chance, the debiased errors know it."""
    cells = simulated(400, 40, gap=0.0)
    assert pooled_ece(cells) == pytest.approx(ece_if_calibrated(cells), rel=0.03)
    assert pooled_ece(cells) > 0.1
    errors = [debiased_squared_error(simulated(400, 40, 0.0, seed)) for seed in range(20)]
    assert abs(np.mean(errors)) < 3 * np.std(errors) / math.sqrt(20) + 1e-4
    found = calibration_of(as_run(cells))
    assert (found.samples, found.clients) == (16000, 400)
    assert found.ece < 0.012 and found.error < 0.012 and found.client_error < 0.02
    assert "40 test samples" in few_samples(found)


def test_error_of_an_overconfident_model_is_its_own():
    """A gap of 0.2 in every bin: ECE and debiased error are 0.2 in truth, the clients' own ECE is above."""
    cells = simulated(400, 40, gap=0.2)
    found = calibration_of(as_run(cells))
    assert found.ece == pytest.approx(0.2, abs=0.012)
    assert found.error == pytest.approx(0.2, abs=0.012)
    assert found.client_error == pytest.approx(0.2, abs=0.012)
    assert found.client_ece > 0.23
    assert few_samples(calibration_of(as_run(simulated(40, 2000, gap=0.2)))) == ""


def test_clients_whose_errors_cancel_are_found_by_their_own_bins():
    low, high = simulated(200, 40, 0.15), simulated(200, 40, -0.15, seed=1)
    cells = pd.concat([low[low["bin"] < 12], high[high["bin"] < 12].assign(client=high["client"] + 200)])
    found = calibration_of(as_run(cells))
    assert found.error < 0.03 and found.client_error == pytest.approx(0.15, abs=0.015)


@pytest.mark.parametrize(("n", "p"), [(1, 0.3), (7, 0.62), (40, 0.9), (300, 0.97)])
def test_chance_is_that_of_a_binomial(n, p):
    ks = np.arange(n + 1)
    mass = np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in ks])
    bins = pd.DataFrame({"count": [n], "confidence": [n * p], "correct": [0]})
    assert ece_if_calibrated(bins) == pytest.approx((mass * np.abs(ks - n * p)).sum() / n, rel=1e-9)


def test_chance_is_none_where_confidence_is_certain():
    assert ece_if_calibrated(pd.DataFrame({"count": [3], "confidence": [3.0], "correct": [3]})) == 0


def test_bins_of_one_sample_are_left_out_of_the_debiased_error():
    bins = pd.DataFrame({"count": [1, 4], "confidence": [0.9, 2.0], "correct": [0, 3]})
    assert debiased_squared_error(bins) == pytest.approx(0.25**2 - 0.75 * 0.25 / 3)
    assert math.isnan(debiased_squared_error(bins[:1]))


def test_reliability_has_edges_means_and_intervals():
    bins = pd.DataFrame({"bin": [14], "count": [10], "confidence": [9.7], "correct": [8]})
    (row,) = reliability(bins).to_dict("records")
    assert (row["low"], row["high"], row["confidence"], row["accuracy"]) == (14 / 15, 1.0, 0.97, 0.8)
    assert (row["accuracy_low"], row["accuracy_high"]) == pytest.approx((0.4902, 0.9433), abs=1e-4)  # Wilson


def test_the_end_of_a_run_counts_rather_than_its_last_round():
    last, end = simulated(4, 40, 0.3), simulated(4, 40, 0.0)
    both = as_run(last)
    both = both._replace(calibration=pd.concat([both.calibration, as_run(end, "end").calibration]))
    assert calibration_bins(both).equals(calibration_bins(as_run(end, "end")))


def test_runs_are_added_up():
    one, other = (as_run(simulated(4, 40, 0.1, seed)) for seed in (0, 1))
    other = other._replace(calibration=other.calibration.assign(run="other"))
    found = calibration_of([one, other])
    assert (found.samples, found.clients) == (320, 8)


def test_a_run_without_counts_is_refused():
    old = Run({"name": "old", "headline": "own"}, pd.DataFrame(), pd.DataFrame())
    with pytest.raises(UserError, match="old has no counts of own by confidence"):
        calibration_of(old)
    with pytest.raises(UserError, match="old has no counts of own by class"):
        confusion_matrix(old)


def test_confusions_of_all_and_of_one_client():
    run = as_run(simulated(2, 10, 0.0))
    whole = confusion_matrix(run)
    assert whole.to_numpy().tolist() == [[5, 2, 0], [0, 3, 0], [1, 0, 0]]
    assert list(whole.index) == list(whole.columns) == ["cat", "dog", "owl"]
    assert confusion_matrix(run, client=1).to_numpy().tolist() == [[0, 0, 0], [0, 3, 0], [1, 0, 0]]
    with pytest.raises(UserError, match="client 7"):
        confusion_matrix(run, client=7)
