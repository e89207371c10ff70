"""Metrics against numbers computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from idiolect.evaluation import METRICS, accuracy, cross_entropy, score

LOGITS = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0], [1.0, 0.0, 0.0]])
LABELS = torch.tensor([0, 1, 0, 0])


def test_accuracy_is_the_share_of_largest_logits_that_hit():
    assert accuracy(LOGITS, LABELS) == 0.75
    assert accuracy(-LOGITS[:1], LABELS[:1]) == 0.0


def test_accuracy_of_thirds_is_not_rounded_to_float32():
    assert accuracy(LOGITS[[0, 2, 2]], LABELS[[0, 2, 2]]) == 1 / 3


def test_cross_entropy_is_the_mean_negative_log_probability():
    def surprise(own: float, *others: float) -> float:
        return math.log(sum(map(math.exp, (own, *others)))) - own

    expected = (surprise(2, 0, 0) + surprise(1, 0, 0) + surprise(0, 0, 3) + surprise(1, 0, 0)) / 4
    assert cross_entropy(LOGITS, LABELS) == pytest.approx(expected, rel=1e-12)


def test_cross_entropy_of_equal_logits_is_the_log_of_the_classes():
    assert cross_entropy(torch.zeros(5, 10), torch.arange(5)) == pytest.approx(math.log(10), rel=1e-12)


def test_cross_entropy_of_large_logits_is_finite():
    assert cross_entropy(torch.tensor([[1e4, 0.0]]), torch.tensor([1])) == pytest.approx(1e4)


def test_metrics_say_which_way_is_better():
    assert METRICS["accuracy"].higher_is_better and not METRICS["loss"].higher_is_better


def test_score_gives_one_value_per_client_by_predictor_and_metric():
    logits = [{"global": LOGITS, "own": -LOGITS}, {"global": LOGITS[:1], "own": LOGITS[:1]}]
    found = score(logits, [LABELS, LABELS[:1]])
    assert found["global"]["accuracy"] == [0.75, 1.0]
    assert found["own"]["accuracy"][1] == 1.0
    assert found["own"]["loss"][0] == cross_entropy(-LOGITS, LABELS)
    assert set(found) == {"global", "own"} and set(found["own"]) == {"accuracy", "loss"}


def test_score_of_nobody_is_empty():
    assert score([], []) == {}
