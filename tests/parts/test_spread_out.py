"""The spread-out loss against a mean over pairs written out (Yu et al., ICML 2020)."""

import numpy as np
import pytest
import torch

from idiolect.parts.spread_out import spread_loss


def in_numpy(rows, margin):
    total = 0.0
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            if i != j:
                distance = (1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)) / 2
                total += max(0.0, margin - distance) ** 2
    return total / len(rows) ** 2  # a pair of a class with itself counts as nothing


@pytest.mark.parametrize("margin", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_mean_over_pairs_agrees_with_numpy(margin):
    rows = np.random.default_rng(2).standard_normal((6, 3))
    found = float(spread_loss(torch.from_numpy(rows), margin))
    assert found == pytest.approx(in_numpy(rows, margin), rel=1e-12)
    assert (found > 0) is (margin > 0)


@pytest.mark.parametrize("n_classes", [10, 100])
def test_strength_does_not_grow_with_the_number_of_classes(n_classes):
    """Of rows that all point the same way every pair costs margin^2, whatever their number."""
    found = float(spread_loss(torch.ones(n_classes, 3, dtype=torch.float64), 0.9))
    assert found == pytest.approx(0.81 * (1 - 1 / n_classes))


def test_row_beside_itself_costs_nothing():
    assert float(spread_loss(torch.ones(1, 3), 1.0)) == 0


def test_loss_does_not_see_the_norms():
    rows = torch.from_numpy(np.random.default_rng(2).standard_normal((4, 3)))
    scaled = rows * torch.tensor([1.0, 2.0, 0.1, 30.0]).double()[:, None]
    torch.testing.assert_close(spread_loss(scaled, 0.9), spread_loss(rows, 0.9), rtol=1e-12, atol=0)


def test_row_of_zeros_has_a_finite_gradient():
    rows = torch.eye(4, dtype=torch.float64)
    rows[2] = 0
    rows.requires_grad_()
    (gradient,) = torch.autograd.grad(spread_loss(rows, 0.9), rows)
    assert torch.isfinite(gradient).all()
