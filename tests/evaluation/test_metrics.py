"""Metrics against numbers computed by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from idiolect.evaluation import METRICS, accuracy, collect_predictions, cross_entropy, macro_f1, score, top_k

LOGITS = torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0], [1.0, 0.0, 0.0]])
LABELS = torch.tensor([0, 1, 0, 0])


def of(metric, logits: Tensor, labels: Tensor, *options: int) -> float:
    """A metric of a single client."""
    (value,) = metric(collect_predictions([logits], [labels]), *options).tolist()
    return value


def test_accuracy_is_the_share_of_largest_logits_that_hit():
    assert of(accuracy, LOGITS, LABELS) == 0.75
    assert of(accuracy, -LOGITS[:1], LABELS[:1]) == 0.0


def test_accuracy_of_thirds_is_not_rounded_to_float32():
    assert of(accuracy, LOGITS[[0, 2, 2]], LABELS[[0, 2, 2]]) == 1 / 3


def test_accuracy_of_equal_logits_goes_to_the_first_class():
    assert of(accuracy, torch.zeros(3, 4), torch.tensor([0, 1, 3])) == 1 / 3


def test_accuracy_counts_a_logit_that_is_no_number_as_a_miss():
    logits = torch.tensor([[1.0, torch.nan], [torch.nan, 1.0], [torch.nan, torch.nan]])
    assert of(accuracy, logits, torch.tensor([0, 0, 0])) == 0


RANKED = torch.tensor([[6.0, 5, 4, 3, 2, 1, 0]])  # class c has c classes ahead


@pytest.mark.parametrize(("k", "hits"), [(1, 1), (2, 2), (5, 5), (7, 7)])
def test_top_k_asks_for_the_label_among_the_k_largest(k, hits):
    assert of(top_k, RANKED.expand(7, -1), torch.arange(7), k) == hits / 7


@pytest.mark.parametrize("classes", [2, 4, 5])
def test_top_five_of_five_classes_or_fewer_is_one(classes):
    assert of(METRICS["top5"].function, torch.randn(6, classes), torch.arange(6) % classes) == 1


def test_top_five_of_six_classes_can_miss():
    assert of(METRICS["top5"].function, RANKED[:, :6], torch.tensor([5])) == 0


def test_top_k_is_over_samples_not_over_batches_or_clients():
    predictions = collect_predictions(
        [RANKED.expand(3, -1), RANKED], [torch.tensor([0, 1, 6]), torch.tensor([6])]
    )
    assert top_k(predictions, 2).tolist() == [2 / 3, 0.0]


def test_macro_f1_by_hand():
    """Labels 0 0 1 2, guesses 0 1 1 3: F1 is 2/3 for class 0, 2/3 for 1, 0 for 2 (held) and 3 (guessed)."""
    guesses, labels = torch.tensor([0, 1, 1, 3]), torch.tensor([0, 0, 1, 2])
    logits = torch.nn.functional.one_hot(guesses, 10).float()
    assert of(macro_f1, logits, labels) == pytest.approx((2 / 3 + 2 / 3) / 4, rel=1e-12)


def test_macro_f1_weighs_classes_alike():
    """Nine of ten hits in a class of nine, none in a class of one: accuracy 0.9, F1 (18/19 + 0) / 2."""
    logits = torch.tensor([[1.0, 0.0]]).expand(10, -1)
    labels = torch.tensor([0] * 9 + [1])
    assert of(accuracy, logits, labels) == 0.9
    assert of(macro_f1, logits, labels) == pytest.approx(9 / 19, rel=1e-12)


def test_cross_entropy_is_the_mean_negative_log_probability():
    def surprise(own: float, *others: float) -> float:
        return math.log(sum(map(math.exp, (own, *others)))) - own

    expected = (surprise(2, 0, 0) + surprise(1, 0, 0) + surprise(0, 0, 3) + surprise(1, 0, 0)) / 4
    assert of(cross_entropy, LOGITS, LABELS) == pytest.approx(expected, rel=1e-12)


def test_cross_entropy_of_equal_logits_is_the_log_of_the_classes():
    assert of(cross_entropy, torch.zeros(5, 10), torch.arange(5)) == pytest.approx(math.log(10), rel=1e-12)


def test_cross_entropy_of_large_logits_is_finite():
    assert of(cross_entropy, torch.tensor([[1e4, 0.0]]), torch.tensor([1])) == pytest.approx(1e4)


def test_metrics_say_which_way_is_better_and_within_what_bounds():
    better = {name for name, metric in METRICS.items() if metric.higher_is_better}
    assert better == {"accuracy", "top5", "macro_f1", "balanced_accuracy"}
    assert set(METRICS) - better == {"loss", "ece", "mce"}
    assert [name for name, metric in METRICS.items() if (metric.low, metric.high) != (0, 1)] == ["loss"]
    assert METRICS["loss"].low == 0 and METRICS["loss"].high is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(2, 8), st.integers(0, 10**6))
def test_clients_judged_together_are_the_clients_judged_alone(sizes, classes, seed):
    random = torch.Generator().manual_seed(seed)
    logits = [3 * torch.randn(n, classes, generator=random) for n in sizes]
    labels = [torch.randint(classes, (n,), generator=random) for n in sizes]
    for name, metric in METRICS.items():
        together = metric.function(collect_predictions(logits, labels)).tolist()
        alone = [of(metric.function, z, y) for z, y in zip(logits, labels, strict=True)]
        assert together == pytest.approx(alone, rel=1e-12), name
        assert all(metric.low <= value <= (metric.high or math.inf) for value in together), name


def test_score_gives_one_value_per_client_by_predictor_and_metric():
    logits = [{"global": LOGITS, "own": -LOGITS}, {"global": LOGITS[:1], "own": LOGITS[:1]}]
    found = score(logits, [LABELS, LABELS[:1]])
    assert found["global"]["accuracy"] == [0.75, 1.0]
    assert found["own"]["accuracy"][1] == 1.0
    assert found["own"]["loss"][0] == of(cross_entropy, -LOGITS, LABELS)
    assert set(found) == {"global", "own"} and set(found["own"]) == set(METRICS)


def test_score_of_nobody_is_empty():
    assert score([], []) == {}
