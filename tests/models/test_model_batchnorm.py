"""Masked batch normalisation: the native layer on real rows, blind to padding, finite at the edges."""

import pytest
import torch
from torch import nn

from idiolect.models import MaskedBatchNorm, batch_statistics

SHAPES = [(6, 3), (6, 3, 4, 5), (2, 3, 1, 1)]


def pair(n_channels, native_class):
    """Our layer and torch's with the same random affine parameters and running statistics, in float64."""
    ours, native = MaskedBatchNorm(n_channels).double(), native_class(n_channels).double()
    with torch.no_grad():
        for name in ("weight", "bias", "running_mean", "running_var"):
            value = torch.rand(n_channels, dtype=torch.float64) + 0.5
            getattr(ours, name).copy_(value)
            getattr(native, name).copy_(value)
    return ours, native


def assert_close(left, right):
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("n_padded", [0, 3])
def test_masked_batchnorm_equals_the_native_layer_on_real_rows(shape, train, n_padded):
    torch.manual_seed(0)
    ours, native = pair(shape[1], nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)
    native.train(train)
    real = torch.randn(shape, dtype=torch.float64) * 3 + 1
    padded = torch.cat([real, torch.full((n_padded, *shape[1:]), 1e3, dtype=torch.float64)])
    mask = torch.tensor([1.0] * shape[0] + [0.0] * n_padded)
    x, y = padded.requires_grad_(), real.clone().requires_grad_()
    weights = torch.randn(shape, dtype=torch.float64)

    for _ in range(2):  # two steps: running statistics enter the second
        left, right = ours(x, mask, train)[: shape[0]], native(y)
    assert_close(left, right)
    (left * weights).sum().backward()
    (right * weights).sum().backward()

    assert_close(x.grad[: shape[0]], y.grad)
    assert torch.equal(x.grad[shape[0] :], torch.zeros_like(x.grad[shape[0] :]))
    assert_close(ours.weight.grad, native.weight.grad)
    assert_close(ours.bias.grad, native.bias.grad)
    assert_close(ours.running_mean, native.running_mean)
    assert_close(ours.running_var, native.running_var)


def test_batch_statistics_count_only_real_values():
    x = torch.tensor([[[[1.0, 3.0]]], [[[5.0, 7.0]]], [[[100.0, -100.0]]]])  # [3, 1, 1, 2]
    mean, variance, count = batch_statistics(x, torch.tensor([1.0, 1.0, 0.0]))
    assert (mean.item(), variance.item(), count.item()) == (4.0, 5.0, 4.0)


@pytest.mark.parametrize("shape", SHAPES)
def test_all_padding_leaves_statistics_alone_and_is_finite(shape):
    torch.manual_seed(0)
    ours, _ = pair(shape[1], nn.BatchNorm1d)
    before = {name: buffer.clone() for name, buffer in ours.named_buffers()}
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    out = ours(x, torch.zeros(shape[0]), True)
    out.square().sum().backward()
    for tensor in (out, x.grad, ours.weight.grad, ours.bias.grad):
        assert torch.isfinite(tensor).all()
    for name, buffer in ours.named_buffers():
        assert torch.equal(buffer, before[name]), name


def test_single_value_per_channel_is_finite_and_keeps_the_running_variance():
    torch.manual_seed(0)
    ours, _ = pair(3, nn.BatchNorm1d)
    mean, variance = ours.running_mean.clone(), ours.running_var.clone()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    out = ours(x, torch.tensor([1.0, 0.0, 0.0, 0.0]), True)
    out.square().sum().backward()
    assert torch.isfinite(out).all() and torch.isfinite(x.grad).all()
    assert_close(out[0], ours.bias.detach().expand(3))
    assert_close(ours.running_mean, 0.9 * mean + 0.1 * x[0].detach())
    assert torch.equal(ours.running_var, variance)


def test_masked_batchnorm_has_only_float_buffers():
    assert dict(MaskedBatchNorm(2).named_buffers()).keys() == {"running_mean", "running_var"}


def test_half_precision_input_keeps_full_precision_statistics():
    torch.manual_seed(0)
    ours = MaskedBatchNorm(3)
    x = torch.randn(64, 3) + 100.0
    half = x.to(torch.bfloat16)
    assert ours(half, torch.ones(64), True).dtype == torch.bfloat16
    torch.testing.assert_close(ours.running_mean, 0.1 * half.float().mean(0))
