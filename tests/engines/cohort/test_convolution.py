"""Both batched forms of a convolution against torch's own: values and gradients, for one client and for many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from idiolect.engines.cohort import convolution
from idiolect.engines.cohort.pooling import plain as plain_pool

N_CLIENTS = 3


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def gradients(form: Callable[..., Tensor], by: tuple[int, ...] = (0, 1)) -> Callable[..., tuple[Tensor, ...]]:
    """By input and by weights, of a sum that weighs every output differently."""
    return grad(lambda *given: (form(*given) * _weights(form(*given))).sum(), argnums=by)


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
        return convolution.convolve_by_slices(x, w, *options)

    def meaning(x: Tensor, w: Tensor) -> Tensor:
        return convolution.plain(x, w, *options)

    assert_same(form(x[0], w[0]), meaning(x[0], w[0]))
    assert_same(gradients(form)(x[0], w[0]), gradients(meaning)(x[0], w[0]))
    assert_same(vmap(form)(x, w), torch.stack([meaning(a, b) for a, b in zip(x, w, strict=True)]))
    each = [gradients(meaning)(a, b) for a, b in zip(x, w, strict=True)]
    assert_same(
        vmap(gradients(form))(x, w), tuple(torch.stack(list(column)) for column in zip(*each, strict=True))
    )


def kernels(padding: int, pool: int) -> Callable[..., Tensor]:
    """The operations that are kernels on a GPU."""

    def form(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        if pool == 1:
            return convolution.convolve_by_kernel(x, w, b, padding)
        return convolution.convolve_and_pool(x, w, b, padding, pool)

    return form


def meaning_of(padding: int, pool: int) -> Callable[..., Tensor]:
    return lambda x, w, b=None: plain_pool(torch.conv2d(x, w, b, padding=padding), pool)


@pytest.mark.parametrize("pool", [1, 2])
@pytest.mark.parametrize(("side", "padding"), [(3, 0), (3, 1), (5, 2), (5, 4), (2, 1)])
def test_kernels_operations_are_the_convolution(side, padding, pool):
    given = drawn(N_CLIENTS, 2, 3, 8, 7), drawn(N_CLIENTS, 4, 3, side, side), drawn(N_CLIENTS, 4)
    form, meaning, by = kernels(padding, pool), meaning_of(padding, pool), (0, 1, 2)
    one = [leaf[0] for leaf in given]
    assert_same(form(*one), meaning(*one))
    assert_same(form(*one[:2]), meaning(*one[:2]))
    assert_same(vmap(form)(*given), torch.stack([meaning(*each) for each in zip(*given, strict=True)]))
    each = [gradients(meaning, by)(*one) for one in zip(*given, strict=True)]
    expected = tuple(torch.stack(list(column)) for column in zip(*each, strict=True))
    assert_same(vmap(gradients(form, by))(*given), expected)
    assert_same(vmap(gradients(form, (2,)))(*given), expected[2:])


@pytest.mark.parametrize("pool", [1, 2])
def test_kernels_operations_have_second_derivatives(pool):
    x, w, b = drawn(2, 3, 6, 6), drawn(4, 3, 3, 3), drawn(4)

    def bent(form: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
        inner = grad(lambda x, w, b: (form(x, w, b) ** 3).mean(), argnums=(0, 1, 2))
        return grad(lambda w, b: sum((g.sin() ** 2).sum() for g in inner(x, w, b)), argnums=(0, 1))

    assert_same(bent(kernels(1, pool))(w, b), bent(meaning_of(1, pool))(w, b))


def test_clients_may_share_weights_or_images():
    x, w, b = drawn(N_CLIENTS, 2, 3, 6, 6), drawn(N_CLIENTS, 4, 3, 3, 3), drawn(N_CLIENTS, 4)
    form, meaning = kernels(1, 1), meaning_of(1, 1)
    shared_weights = vmap(lambda x: form(x, w[0], b[0]))(x)
    assert_same(shared_weights, torch.stack([meaning(a, w[0], b[0]) for a in x]))
    shared_weights_alone = vmap(lambda x, b: form(x, w[0], b))(x, b)
    assert_same(shared_weights_alone, torch.stack([meaning(a, w[0], c) for a, c in zip(x, b, strict=True)]))
    shared_images = vmap(lambda w: form(x[0], w, b[0]))(w)
    assert_same(shared_images, torch.stack([meaning(x[0], c, b[0]) for c in w]))


def test_kernel_is_for_gpus_that_may_round():
    x, w = torch.zeros(1, 2, 8, 8), torch.zeros(4, 2, 3, 3)
    assert not convolution.kernel_serves(x, w, (1, 1), (0, 0), (1, 1))
    assert not convolution.kernel_serves(x.bfloat16(), w.bfloat16(), (1, 1), (0, 0), (1, 1))


@pytest.mark.parametrize("pool", [1, 2])
def test_single_examples_of_many_clients_have_gradients_of_their_own(pool):
    """As a Fisher diagonal needs them: mapped over clients, and within over examples that share weights."""
    x, w = drawn(N_CLIENTS, 2, 3, 6, 6), drawn(N_CLIENTS, 4, 3, 3, 3)

    def of_one(form: Callable[..., Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        return grad(lambda w, x: form(x[None], w).sin().sum())

    found = vmap(lambda w, x: vmap(of_one(kernels(1, pool)), (None, 0))(w, x))(w, x)
    meaning = of_one(meaning_of(1, pool))
    expected = [[meaning(b, one) for one in a] for a, b in zip(x, w, strict=True)]
    assert_same(found, torch.stack([torch.stack(row) for row in expected]))
