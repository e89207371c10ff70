"""Max-pooling by comparisons against torch's own, ties and NaN included."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, vmap

from idiolect.engines.cohort.pooling import max_pool, plain, unpool


def whole_numbers(*shape: int) -> torch.Tensor:
    """Few different values, so that most windows hold a tie."""
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize(
    ("side", "height", "width"), [(2, 6, 8), (2, 7, 9), (3, 9, 11), (4, 8, 8), (1, 3, 4)]
)
def test_values_and_gradients_are_torchs(side, height, width):
    x = whole_numbers(3, 2, 4, height, width)

    def weighed(pool):
        return lambda x: (pool(x, side) * torch.arange(pool(x, side).numel()).view(pool(x, side).shape)).sum()

    expected = torch.stack([plain(one, side) for one in x])
    torch.testing.assert_close(vmap(lambda x: max_pool(x, side))(x), expected, rtol=0, atol=0)
    expected = torch.stack([grad(weighed(plain))(one) for one in x])
    torch.testing.assert_close(vmap(grad(weighed(max_pool)))(x), expected, rtol=0, atol=0)
    torch.testing.assert_close(grad(weighed(max_pool))(x[0]), expected[0], rtol=0, atol=0)


def test_nan_is_the_largest():
    x = whole_numbers(1, 1, 4, 4)
    x[0, 0, 1, 0] = float("nan")
    torch.testing.assert_close(max_pool(x, 2), plain(x, 2), equal_nan=True)


def test_unpooling_is_linear_with_the_gradient_that_follows():
    g = torch.randn(2, 3, 2, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    winner = torch.randint(4, g.shape, generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    out = unpool(g, winner, 2, (7, 5))
    assert out.shape == (2, 7, 5, 5)
    assert out.count_nonzero() == g.numel()
    torch.testing.assert_close(out.sum((1, 2)), g.sum((1, 2)))
    u = torch.randn_like(out)
    found = grad(lambda g: (unpool(g, winner, 2, (7, 5)) * u).sum())(g)
    assert float((found * g).sum()) == pytest.approx(float((out * u).sum()))
