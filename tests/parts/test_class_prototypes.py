"""Prototypes of FedProto (Tan et al., AAAI 2022): what a batch pays, what the server keeps, what travels."""

from types import SimpleNamespace

import pytest
import torch

from idiolect.core import Out
from idiolect.core.server import weighted_mean
from idiolect.parts import class_prototypes
from idiolect.parts.class_prototypes import nearness

NAN = float("nan")


def tensor(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def distance(features, labels, prototypes, mask=None, **options):
    part = class_prototypes(**options)
    loss = part.loss(lambda params, batch, out: 0.0, SimpleNamespace(server={"prototypes": prototypes}))
    mask = torch.ones(len(labels)).double() if mask is None else mask
    return loss({}, SimpleNamespace(y=torch.tensor(labels), mask=mask), Out(features, None))


PROTOTYPES = tensor([1.0, 1.0], [NAN, NAN], [0.0, 2.0])
FEATURES = tensor([2.0, 1.0], [5.0, 5.0], [0.0, -1.0], [1.0, 4.0])
LABELS = [0, 1, 2, 0]  # squared distances 1, -, 9, 9


@pytest.mark.parametrize(("reduction", "expected"), [("mean", 19 / 8), ("sum", 19 / 4)])
def test_distance_is_a_mean_over_the_batch_and_skips_classes_without_prototype(reduction, expected):
    assert float(distance(FEATURES, LABELS, PROTOTYPES, reduction=reduction)) == pytest.approx(expected)


def test_distance_is_weighted():
    assert float(distance(FEATURES, LABELS, PROTOTYPES, weight=4.0)) == pytest.approx(19 / 2)


def test_padded_rows_add_nothing():
    mask = tensor(1.0, 0.0, 1.0, 0.0)
    assert float(distance(FEATURES, LABELS, PROTOTYPES, mask)) == pytest.approx(10 / 4)


def test_absent_prototypes_give_no_nan_to_the_gradient():
    features = FEATURES.clone().requires_grad_()
    distance(features, LABELS, PROTOTYPES).backward()
    assert features.grad.isfinite().all()
    assert not features.grad[1].any() and features.grad[0].any()


def merged(slot, sums, counts):
    part = class_prototypes()
    value = {"sum": torch.stack(sums), "count": torch.stack(counts)}
    mean = weighted_mean(value, torch.ones(len(sums)).double())
    return part.merge({}, {"prototypes": slot}, mean, None)[1]["prototypes"]


def test_merge_weighs_clients_by_the_samples_of_each_class():
    """Class 0: mean 1 over 3 samples and mean 5 over 1; class 1 from the second client alone; class 2 from none."""
    sums = [tensor([3.0], [0.0], [0.0]), tensor([5.0], [4.0], [0.0])]
    counts = [tensor(3.0, 0.0, 0.0), tensor(1.0, 2.0, 0.0)]
    found = merged(tensor([NAN], [NAN], [7.0]), sums, counts)
    torch.testing.assert_close(found, tensor([2.0], [2.0], [7.0]))


def test_traffic_is_one_row_and_one_count_for_every_observed_class():
    value = {"sum": torch.zeros(5, 3), "count": torch.tensor([2.0, 0.0, 1.0, 0.0, 0.0])}
    assert class_prototypes().scalars(value) == 2 * (3 + 1)


def test_nearness_is_minus_the_squared_distance_and_puts_absent_classes_last():
    found = nearness(FEATURES, PROTOTYPES)
    torch.testing.assert_close(found[:, 0], -tensor(1.0, 32.0, 5.0, 9.0))
    torch.testing.assert_close(found[:, 2], -tensor(5.0, 34.0, 9.0, 5.0))
    assert bool((found[:, 1] < found[:, [0, 2]].amin(1)).all()) and found.isfinite().all()


def test_absent_class_is_not_predicted_even_at_its_placeholder():
    """A feature of zeros beside prototypes far away: what stands in for the absent one must not win."""
    found = nearness(torch.zeros(1, 2).double(), tensor([1e3, 1e3], [NAN, NAN], [1e3, -1e3]))
    assert int(found.argmax()) != 1
