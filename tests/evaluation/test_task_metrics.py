"""Metrics of every task against computations written from their definitions."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import rankdata

from idiolect.core import OBJECTIVES, Choice
from idiolect.data import CLASS_TASKS, TASKS
from idiolect.errors import UserError
from idiolect.evaluation import METRICS, choose, chosen_metrics, metrics_of, register_metric, score
from idiolect.evaluation.metrics import _KNOWN

SIZES = (7, 1, 12, 5)


def drawn(columns: int, seed: int = 0) -> tuple[list[torch.Tensor], np.random.Generator]:
    """Outputs of four clients, rounded so that some are equal."""
    random = np.random.default_rng(seed)
    return [torch.from_numpy(random.normal(size=(n, columns)).round(1)) for n in SIZES], random


def of(
    task: str, name: str, outputs: list[torch.Tensor], targets: list[torch.Tensor], units=None
) -> list[float]:
    metric = {name: metrics_of(task)[name]}
    return score([{"it": z} for z in outputs], targets, metric, units)["it"][name]


def by_pairs(scores: np.ndarray, positive: np.ndarray) -> float:
    """The share of pairs of a positive and a negative in which the positive scores higher, equals counting half."""
    pairs = list(product(scores[positive], scores[~positive]))
    return np.mean([(p > n) + 0.5 * (p == n) for p, n in pairs]) if pairs else math.nan


def mean_defined(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def test_every_task_of_the_data_has_an_objective_whose_metrics_exist():
    assert set(OBJECTIVES) == set(TASKS)
    assert {task for task in TASKS if OBJECTIVES[task].has_classes} == set(CLASS_TASKS)
    for task, objective in OBJECTIVES.items():
        assert objective.primary == objective.metrics[0]
        assert list(chosen_metrics(task, 5)) == list(objective.metrics)
        assert all(task in metric.tasks for metric in chosen_metrics(task, 5).values())


@pytest.mark.parametrize("seed", range(4))
def test_auroc_of_two_classes_is_the_share_of_pairs_in_order(seed):
    outputs, random = drawn(2, seed)
    labels = [torch.from_numpy(random.integers(0, 2, n)) for n in SIZES]
    wanted = [
        by_pairs((z[:, 1] - z[:, 0]).numpy(), y.numpy() == 1) for z, y in zip(outputs, labels, strict=True)
    ]
    assert of("binary", "auroc", outputs, labels) == pytest.approx(wanted, nan_ok=True, rel=1e-12)
    assert math.isnan(wanted[1])  # one sample


def test_auroc_of_several_classes_is_the_mean_of_each_against_the_rest():
    outputs, random = drawn(4)
    labels = [torch.from_numpy(random.integers(0, 3, n)) for n in SIZES]  # nobody holds class 3
    wanted = [
        mean_defined([by_pairs(z.softmax(1)[:, c].numpy(), y.numpy() == c) for c in range(4)])
        for z, y in zip(outputs, labels, strict=True)
    ]
    assert of("classification", "auroc", outputs, labels) == pytest.approx(wanted, nan_ok=True, rel=1e-12)


def test_auroc_of_labels_leaves_out_labels_that_all_or_no_samples_have():
    outputs, random = drawn(3)
    labels = [torch.from_numpy(random.integers(0, 2, (n, 3)).astype(np.float32)) for n in SIZES]
    labels[0][:, 1], labels[2][:, 0] = 0, 1
    wanted = [
        mean_defined([by_pairs(z[:, k].numpy(), y[:, k].numpy() == 1) for k in range(3)])
        for z, y in zip(outputs, labels, strict=True)
    ]
    assert of("multilabel", "auroc", outputs, labels) == pytest.approx(wanted, nan_ok=True, rel=1e-12)


def test_auroc_by_ranks_agrees_with_scipys_mean_ranks():
    outputs, random = drawn(1)
    y = random.integers(0, 2, SIZES[2])
    ranks = rankdata(outputs[2][:, 0].numpy())
    p, q = int(y.sum()), int((1 - y).sum())
    wanted = (ranks[y == 1].sum() - p * (p + 1) / 2) / (p * q)
    targets = [torch.zeros(n, 1) for n in SIZES]
    targets[2] = torch.from_numpy(y.astype(np.float32))[:, None]
    assert of("multilabel", "auroc", outputs, targets)[2] == pytest.approx(wanted, rel=1e-12)


def test_balanced_accuracy_weighs_the_classes_that_are_held_alike():
    logits = torch.tensor([[1.0, 0.0, 0.0]]).expand(10, -1)
    labels = torch.tensor([0] * 9 + [1])
    assert of("classification", "balanced_accuracy", [logits], [labels]) == [0.5]


def test_perplexity_is_exp_of_the_loss_and_k_for_a_guess():
    outputs, random = drawn(6)
    labels = [torch.from_numpy(random.integers(0, 6, n)) for n in SIZES]
    losses = of("next_token", "loss", outputs, labels)
    assert of("next_token", "perplexity", outputs, labels) == pytest.approx([math.exp(x) for x in losses])
    assert of("next_token", "perplexity", [torch.zeros(3, 7)], [torch.arange(3)]) == pytest.approx([7])


def test_label_metrics_by_hand():
    """Outputs say 10, 11 and 00; the labels are 11, 01 and 00."""
    outputs = [torch.tensor([[2.0, -1.0], [0.5, 3.0], [-1.0, -0.1]])]
    labels = [torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])]
    assert of("multilabel", "accuracy", outputs, labels) == pytest.approx([4 / 6])
    assert of("multilabel", "macro_f1", outputs, labels) == pytest.approx([(2 / 3 + 2 / 3) / 2])
    each = zip((2, -1, 0.5, 3, -1, -0.1), (1, 1, 0, 1, 0, 0), strict=True)
    surprise = [math.log(1 + math.exp(-z if y else z)) for z, y in each]
    assert of("multilabel", "loss", outputs, labels) == pytest.approx([np.mean(surprise)])
    none = of("multilabel", "macro_f1", [torch.full((2, 2), -1.0)], [torch.zeros(2, 2)])
    assert math.isnan(none[0])


def test_regression_metrics_are_in_the_units_of_the_targets():
    outputs, random = drawn(2)
    targets = [torch.from_numpy(random.normal(size=(n, 2))) for n in SIZES]
    targets[0][:, 0] = 0.25  # constant at this client
    mean, std = (10.0, -3.0), (4.0, 0.5)
    units = (mean, std)
    found = {name: of("regression", name, outputs, targets, units) for name in ("mae", "rmse", "r2", "loss")}
    for client, (z, y) in enumerate(zip(outputs, targets, strict=True)):
        guess, true = (t.numpy() * std + np.array(mean) for t in (z, y))
        assert found["mae"][client] == pytest.approx(np.abs(guess - true).mean(0).mean())
        assert found["rmse"][client] == pytest.approx(np.sqrt(((guess - true) ** 2).mean(0)).mean())
        r2 = [
            1 - ((guess[:, k] - true[:, k]) ** 2).sum() / ((true[:, k] - true[:, k].mean()) ** 2).sum()
            if len(set(true[:, k])) > 1
            else math.nan
            for k in range(2)
        ]
        assert found["r2"][client] == pytest.approx(mean_defined(r2), nan_ok=True)
        assert found["loss"][client] == pytest.approx(((z - y) ** 2).mean().item())
    assert math.isnan(found["r2"][1]) and not math.isnan(found["r2"][0])


@pytest.mark.parametrize("task", TASKS)
def test_clients_together_are_the_clients_alone_and_within_the_bounds(task):
    outputs, random = drawn(3)
    if OBJECTIVES[task].has_classes:
        targets = [torch.from_numpy(random.integers(0, 3, n)) for n in SIZES]
    else:
        targets = [torch.from_numpy(random.integers(0, 2, (n, 3)).astype(np.float32)) for n in SIZES]
    for name, metric in metrics_of(task).items():
        together = of(task, name, outputs, targets)
        alone = [of(task, name, [z], [y])[0] for z, y in zip(outputs, targets, strict=True)]
        assert together == pytest.approx(alone, nan_ok=True, rel=1e-12), name
        low, high = (
            -math.inf if metric.low is None else metric.low,
            math.inf if metric.high is None else metric.high,
        )
        assert all(low <= value <= high for value in together if not math.isnan(value)), name


def test_two_classes_have_auroc_by_default_and_several_on_request():
    assert "auroc" in chosen_metrics("classification", 2) and "auroc" not in METRICS
    assert list(chosen_metrics("classification", 10, " auroc ,accuracy")) == [*METRICS, "auroc"]


def test_metrics_of_other_tasks_and_unknown_ones_are_refused_by_name():
    with pytest.raises(UserError, match="names rmse, which serves regression and not classification"):
        chosen_metrics("classification", 10, "rmse")
    with pytest.raises(UserError, match=r"'auorc', which is no metric; .*did you mean auroc"):
        chosen_metrics("classification", 10, "auorc")


def test_registered_metrics_are_chosen_by_name_alone():
    with pytest.raises(UserError, match="accuracy is a metric of binary already"):
        register_metric("accuracy", lambda p: p.sizes, higher_is_better=True, tasks=("binary",))
    with pytest.raises(UserError, match="a task of the metric must be one of"):
        register_metric("size", lambda p: p.sizes, higher_is_better=True, tasks=("sorting",))
    register_metric("size", lambda p: p.sizes, higher_is_better=True, tasks=("regression",))
    try:
        assert "size" not in chosen_metrics("regression", 1)
        chosen = chosen_metrics("regression", 1, "size")
        outputs, _ = drawn(1)
        assert score([{"it": z} for z in outputs], outputs, chosen)["it"]["size"] == list(SIZES)
    finally:
        _KNOWN.pop()


def test_choice_follows_the_metric_its_direction_and_leaves_undefined_clients_out():
    nan = math.nan
    scores = {"mix(0)": {"rmse": [1.0, nan]}, "mix(1)": {"rmse": [0.5, nan]}, "mix(2)": {"rmse": [nan, nan]}}
    choice = Choice("mix(validated)", "mix(", "mix(oracle)")
    assert choose([choice], scores, scores, "rmse", higher_is_better=False)[1]["mix(validated)"] == "mix(1)"
    assert choose([choice], scores, scores, "rmse")[1]["mix(validated)"] == "mix(0)"
