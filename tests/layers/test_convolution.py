"""Both batched forms of a convolution against torch's own: values and gradients, for one client and for many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from idiolect.layers import convolution, implicit
from idiolect.layers.pooling import plain as plain_pool

N_CLIENTS = 3


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def gradients(form: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """By input and by weights, of a sum that weighs every output differently."""
    return grad(lambda x, w: (form(x, w) * _weights(form(x, w))).sum(), argnums=(0, 1))


def _weights(y: Tensor) -> Tensor:
    return torch.arange(y.numel(), dtype=y.dtype).sin().view(y.shape)


def assert_same(found: object, expected: object) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dilation", [(1, 1), (2, 1)])
@pytest.mark.parametrize("padding", [(0, 0), (1, 2)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 3)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (2, 4)])
def test_product_is_the_convolution(kernel, stride, padding, dilation):
    x, w = drawn(N_CLIENTS, 2, 3, 9, 10), drawn(N_CLIENTS, 4, 3, *kernel)
    options = (stride, padding, dilation)

    def form(x: Tensor, w: Tensor) -> Tensor:
        return convolution.convolve(x, w, *options)

    def meaning(x: Tensor, w: Tensor) -> Tensor:
        return convolution.plain(x, w, *options)

    assert_same(form(x[0], w[0]), meaning(x[0], w[0]))
    assert_same(gradients(form)(x[0], w[0]), gradients(meaning)(x[0], w[0]))
    assert_same(vmap(form)(x, w), torch.stack([meaning(a, b) for a, b in zip(x, w, strict=True)]))
    each = [gradients(meaning)(a, b) for a, b in zip(x, w, strict=True)]
    assert_same(
        vmap(gradients(form))(x, w), tuple(torch.stack(list(column)) for column in zip(*each, strict=True))
    )


@pytest.mark.parametrize("pool", [1, 2])
@pytest.mark.parametrize(("side", "padding"), [(3, 0), (3, 1), (5, 2), (5, 4), (2, 1)])
def test_kernels_operations_are_the_convolution(side, padding, pool):
    x, w = drawn(N_CLIENTS, 2, 3, 8, 7), drawn(N_CLIENTS, 4, 3, side, side)

    def form(x: Tensor, w: Tensor) -> Tensor:
        return (
            implicit.convolve(x, w, padding) if pool == 1 else implicit.convolve_and_pool(x, w, padding, pool)
        )

    def meaning(x: Tensor, w: Tensor) -> Tensor:
        return plain_pool(torch.conv2d(x, w, padding=padding), pool)

    assert_same(form(x[0], w[0]), meaning(x[0], w[0]))
    assert_same(vmap(form)(x, w), torch.stack([meaning(a, b) for a, b in zip(x, w, strict=True)]))
    each = [gradients(meaning)(a, b) for a, b in zip(x, w, strict=True)]
    assert_same(
        vmap(gradients(form))(x, w), tuple(torch.stack(list(column)) for column in zip(*each, strict=True))
    )


@pytest.mark.parametrize("pool", [1, 2])
def test_kernels_operations_have_second_derivatives(pool):
    x, w = drawn(2, 3, 6, 6), drawn(4, 3, 3, 3)

    def bent(form: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        inner = grad(lambda x, w: (form(x, w) ** 3).mean(), argnums=(0, 1))
        return grad(lambda w: sum((g.sin() ** 2).sum() for g in inner(x, w)))

    def form(x: Tensor, w: Tensor) -> Tensor:
        return implicit.convolve(x, w, 1) if pool == 1 else implicit.convolve_and_pool(x, w, 1, pool)

    expected = bent(lambda x, w: plain_pool(torch.conv2d(x, w, padding=1), pool))(w)
    assert_same(bent(form)(w), expected)


def test_clients_may_share_weights_or_images():
    x, w = drawn(N_CLIENTS, 2, 3, 6, 6), drawn(N_CLIENTS, 4, 3, 3, 3)
    shared_weights = vmap(lambda x: implicit.convolve(x, w[0], 1))(x)
    assert_same(shared_weights, torch.stack([torch.conv2d(a, w[0], padding=1) for a in x]))
    shared_images = vmap(lambda w: implicit.convolve(x[0], w, 1))(w)
    assert_same(shared_images, torch.stack([torch.conv2d(x[0], b, padding=1) for b in w]))


def test_kernel_is_for_gpus_that_may_round():
    x, w = torch.zeros(1, 2, 8, 8), torch.zeros(4, 2, 3, 3)
    assert not implicit.serves(x, w, (1, 1), (0, 0), (1, 1))
    assert not implicit.serves(x.bfloat16(), w.bfloat16(), (1, 1), (0, 0), (1, 1))


@pytest.mark.parametrize("pool", [1, 2])
def test_single_examples_of_many_clients_have_gradients_of_their_own(pool):
    """As a Fisher diagonal needs them: mapped over clients, and within over examples that share weights."""
    x, w = drawn(N_CLIENTS, 2, 3, 6, 6), drawn(N_CLIENTS, 4, 3, 3, 3)

    def of_one(form: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        return grad(lambda w, x: form(x[None], w).sin().sum())

    def form(x: Tensor, w: Tensor) -> Tensor:
        return implicit.convolve(x, w, 1) if pool == 1 else implicit.convolve_and_pool(x, w, 1, pool)

    found = vmap(lambda w, x: vmap(of_one(form), (None, 0))(w, x))(w, x)
    meaning = of_one(lambda x, w: plain_pool(torch.conv2d(x, w, padding=1), pool))
    expected = [[meaning(b, one) for one in a] for a, b in zip(x, w, strict=True)]
    assert_same(found, torch.stack([torch.stack(row) for row in expected]))
