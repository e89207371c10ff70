"""Calibration errors against hand computations and a plain loop over the bins."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from idiolect.evaluation import (
    collect_predictions,
    expected_calibration_error,
    in_batches,
    maximum_calibration_error,
    per_batch_metrics,
)


def logits_of(*confidences: float) -> Tensor:
    """Two classes, the first with the given probability."""
    return torch.tensor([[math.log(p), math.log(1 - p)] for p in confidences], dtype=torch.float64)


def one(metric, logits: Tensor, labels: Tensor, **options: int) -> float:
    return float(metric(collect_predictions([logits], [labels]), **options))


def by_hand(logits: Tensor, labels: Tensor, bins: int) -> tuple[float, float]:
    """The definitions, bin by bin: lower edge outside, upper edge inside."""
    confidence, guess = logits.softmax(1).max(1)
    total, worst = 0.0, 0.0
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        if inside.any():
            gap = abs(float((guess == labels)[inside].double().mean() - confidence[inside].mean()))
            total += float(inside.double().mean()) * gap
            worst = max(worst, gap)
    return total, worst


def test_errors_by_hand():
    """Confidences 0.9, 0.92 (hit, miss) share the bin (13/15, 14/15]; 0.6 (hit) lies in (8/15, 9/15]."""
    logits, labels = logits_of(0.9, 0.92, 0.6), torch.tensor([0, 1, 0])
    full, low = abs(0.5 - 0.91), abs(1 - 0.6)
    assert one(expected_calibration_error, logits, labels) == pytest.approx((2 * full + low) / 3, rel=1e-12)
    assert one(maximum_calibration_error, logits, labels) == pytest.approx(max(full, low), rel=1e-12)


@pytest.mark.parametrize("bins", [1, 4, 15, 20])
def test_errors_are_those_of_a_loop_over_bins(bins):
    random = torch.Generator().manual_seed(bins)
    logits = 2 * torch.randn(200, 5, generator=random, dtype=torch.float64)
    labels = torch.randint(5, (200,), generator=random)
    expected = by_hand(logits, labels, bins)
    assert one(expected_calibration_error, logits, labels, bins=bins) == pytest.approx(expected[0], rel=1e-10)
    assert one(maximum_calibration_error, logits, labels, bins=bins) == pytest.approx(expected[1], rel=1e-10)


def test_confidence_on_an_edge_falls_into_the_bin_below_it():
    """0.4 and 0.5 share the bin (0, 0.5]; were the edge in the upper bin, each had a gap of its own."""
    logits = torch.tensor([[math.log(0.4), math.log(0.3), math.log(0.3)], [0.0, 0.0, -1e4]]).double()
    predictions = collect_predictions([logits], [torch.tensor([0, 1])])
    assert float(predictions.confidence[1]) == 0.5
    assert float(expected_calibration_error(predictions, bins=2)) == pytest.approx(abs(0.5 - 0.45), rel=1e-6)


def test_certainty_that_is_right_is_calibrated_and_that_is_wrong_is_not():
    logits = torch.tensor([[1e3, 0.0]])
    assert one(expected_calibration_error, logits, torch.tensor([0])) == 0
    assert one(expected_calibration_error, logits, torch.tensor([1])) == 1
    assert one(maximum_calibration_error, logits, torch.tensor([1])) == 1


def test_batches_are_averaged_alike_and_the_last_may_be_short():
    logits, labels = logits_of(0.9, 0.92, 0.6), torch.tensor([0, 1, 0])
    predictions = collect_predictions([logits, logits[:1]], [labels, labels[:1]])
    found = in_batches(expected_calibration_error, predictions, 2).tolist()
    assert found == pytest.approx([(abs(0.5 - 0.91) + 0.4) / 2, 0.1], rel=1e-12)


def test_one_batch_that_holds_all_is_the_whole_split():
    logits, labels = logits_of(0.9, 0.92, 0.6), torch.tensor([0, 1, 0])
    predictions = collect_predictions([logits, logits], [labels, 1 - labels])
    for name, metric in per_batch_metrics(3).items():
        whole = {"ece_per_batch": expected_calibration_error, "mce_per_batch": maximum_calibration_error}[
            name
        ]
        assert metric.function(predictions).tolist() == whole(predictions).tolist()


def test_small_batches_push_the_error_up():
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(400, 10, generator=random)
    labels = torch.multinomial(logits.softmax(1), 1, generator=random)[:, 0]
    predictions = collect_predictions([logits], [labels])
    whole, small = (
        expected_calibration_error(predictions),
        per_batch_metrics(10)["ece_per_batch"].function(predictions),
    )
    assert float(small) > 2 * float(whole)
