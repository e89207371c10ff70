"""The meta-gradients of Per-FedAvg (Fallah, Mokhtari, Ozdaglar, NeurIPS 2020) on functions with known Hessians."""

import pytest
import torch

from idiolect.parts import meta_gradient

A, D = 0.1, 3


def symmetric(seed):
    m = torch.randn(D, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return m + m.T


def vector(seed):
    return torch.randn(D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# a batch is (Hessian, linear term): w' H w / 2 + c' w
BATCHES = tuple((symmetric(s), vector(10 + s)) for s in range(3))
W = vector(99)


def quadratic(params, buffers, batches):
    hessian, linear = batches[0]
    return {"model": {"w": hessian @ params["model"]["w"] + linear}}, {"calls": buffers["calls"] + 1}


def meta(form, difference=1e-3, inner=quadratic, rate=A):
    part = meta_gradient(form, inner_rate=rate, outer_rate=1.0, difference=difference)
    grads, buffers, carry = part.gradient(inner, None)({"model": {"w": W}}, {"calls": 0}, BATCHES, {})
    assert carry == {}
    return grads["model"]["w"], buffers


def at_adapted_point():
    (h0, c0), (h1, c1), _ = BATCHES
    return h1 @ (W - A * (h0 @ W + c0)) + c1


@pytest.mark.parametrize("difference", [1e-3, 1.0, 1e3])
def test_hessian_free_gradient_is_exact_on_quadratics_for_any_difference(difference):
    expected = at_adapted_point() - A * BATCHES[2][0] @ at_adapted_point()
    torch.testing.assert_close(meta("hessian_free", difference)[0], expected, rtol=1e-9, atol=1e-10)


def test_first_order_gradient_is_that_of_the_adapted_point_and_not_exact():
    found, _ = meta("first_order")
    torch.testing.assert_close(found, at_adapted_point(), rtol=1e-12, atol=1e-12)
    exact = at_adapted_point() - A * BATCHES[2][0] @ at_adapted_point()
    assert (found - exact).abs().max() > 1e-2


def test_error_of_the_hessian_vector_product_shrinks_with_the_square_of_the_difference():
    """The gradient H w + c + w^4 has the derivative H + 4 diag(w^3)."""

    def curved(params, buffers, batches):
        hessian, linear = batches[0]
        w = params["model"]["w"]
        return {"model": {"w": hessian @ w + linear + w**4}}, buffers

    first = BATCHES[0][0] @ W + BATCHES[0][1] + W**4
    adapted = W - A * first
    g = BATCHES[1][0] @ adapted + BATCHES[1][1] + adapted**4
    exact = g - A * (BATCHES[2][0] @ g + 4 * W**3 * g)
    errors = [float((meta("hessian_free", d, curved)[0] - exact).abs().max()) for d in (0.1, 0.01)]
    assert errors[1] == pytest.approx(errors[0] / 100, rel=0.05)


@pytest.mark.parametrize("form", ["first_order", "hessian_free"])
def test_gradient_without_an_inner_rate_is_the_plain_one_of_the_second_batch(form):
    found, _ = meta(form, rate=0.0)
    assert torch.equal(found, BATCHES[1][0] @ W + BATCHES[1][1])


@pytest.mark.parametrize("form", ["first_order", "hessian_free"])
def test_statistics_come_from_the_second_batch_alone(form):
    assert meta(form)[1] == {"calls": 1}
