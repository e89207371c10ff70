"""Proxy diagnostics against numbers computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from idiolect.errors import UserError
from idiolect.evaluation import accumulated_gradient_norms, proxy_diagnostics

# classes 0, 1, 2 observed: a right triangle with sides 3, 4, 5; classes 3, 4 missing, 1 apart
HEAD = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 4.0], [0.0, 0.0], [1.0, 0.0]])


def test_distances_by_hand_count_the_zero_diagonal():
    found = proxy_diagnostics(HEAD, [0, 1, 2])
    assert found.observed_observed == pytest.approx(2 * (3 + 4 + 5) / 9)
    to_third, to_fourth = 0 + 3 + 4, 1 + 2 + math.sqrt(17)
    assert found.observed_missing == pytest.approx((to_third + to_fourth) / 6)
    assert found.missing_missing == pytest.approx(2 * 1 / 4)


def test_norms_are_of_the_rows():
    assert proxy_diagnostics(HEAD, [0]).norms.tolist() == [0, 3, 4, 0, 1]


def test_collapsed_missing_proxies_have_no_distance():
    head = HEAD.clone()
    head[4] = head[3]
    assert proxy_diagnostics(head, [0, 1, 2]).missing_missing == 0


def test_complete_classes_have_no_distance_to_missing_ones():
    found = proxy_diagnostics(HEAD, range(5))
    assert math.isnan(found.observed_missing) and math.isnan(found.missing_missing)
    assert found.observed_observed > 0


def test_order_of_the_observed_classes_does_not_matter():
    assert proxy_diagnostics(HEAD, [2, 0, 1])[1:] == proxy_diagnostics(HEAD, {0, 1, 2})[1:]


def test_class_without_a_row_is_refused_by_number():
    with pytest.raises(UserError, match="class 7 is observed but the head has rows for 0 to 4"):
        proxy_diagnostics(HEAD, [0, 7])


def test_gradients_are_accumulated_before_the_norm_or_after():
    steps = [torch.tensor([[3.0, 0.0], [1.0, 0.0]]), torch.tensor([[0.0, 4.0], [-1.0, 0.0]])]
    assert accumulated_gradient_norms(steps).tolist() == [5, 0]
    assert accumulated_gradient_norms(steps, "norm").tolist() == [7, 2]
    with pytest.raises(UserError, match="accumulate must be one of gradient, norm"):
        accumulated_gradient_norms(steps, "sum")
    with pytest.raises(UserError, match="at least one step"):
        accumulated_gradient_norms([])


def test_missing_proxies_collapse_in_training_as_the_paper_observes():
    """A linear head on four of six classes: the pushed rows of the two missing ones come together."""
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % 4
    centres = 3 * torch.randn(4, 8, generator=random)
    features = (centres[labels] + torch.randn(400, 8, generator=random)).relu()
    head = (0.3 * torch.randn(6, 8, generator=random)).requires_grad_()
    optimiser, epochs = torch.optim.SGD([head], 0.1, momentum=0.9), []
    before = proxy_diagnostics(head, range(4))
    for _ in range(40):
        steps = []
        for batch in torch.randperm(400, generator=random).split(50):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(features[batch] @ head.T, labels[batch]).backward()
            steps.append(head.grad.clone())
            optimiser.step()
        epochs.append(accumulated_gradient_norms(steps))
    after = proxy_diagnostics(head, range(4))
    assert (
        after.missing_missing < before.missing_missing and after.missing_missing < after.observed_observed / 2
    )
    assert (epochs[-1][4:] < 0.1 * epochs[0][4:]).all()
