"""Masked batch normalisation, whose statistics leave out padded rows.

    y = weight * (x - mean) / sqrt(var + eps) + bias,     mean and var over the real rows and all positions
    running <- (1 - momentum) * running + momentum * batch statistic

Ioffe and Szegedy, ICML 2015, algorithm 1; https://arxiv.org/abs/1502.03167.  On rows that are all real this
is torch.nn.BatchNorm1d/2d in value, gradient and running statistics: biased variance normalises, unbiased
runs.

Deviations from the native layer: no `num_batches_tracked`; a batch without real rows leaves the running
statistics alone; a batch with one value per channel, which the native layer refuses, leaves the running
variance alone, since its unbiased variance does not exist.  Padded rows must be finite: they are multiplied
by zero.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["MaskedBatchNorm", "batch_statistics"]


def batch_statistics(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns mean and biased variance of every channel over the real rows, and the number of values.

    Args:
        x: [B, F] or [B, F, H, W], finite in padded rows too.
        mask: [B], 1.0 for a real row and 0.0 for padding.

    Returns:
        mean [F], variance [F] and count [], where count = real rows * positions (H * W, or 1).  With no real
        row all three are zero.  Statistics of several batches combine exactly through (mean, variance,
        count).
    """
    over = [axis for axis in range(x.dim()) if axis != 1]
    weight = mask.to(x.dtype).reshape([-1] + [1] * (x.dim() - 1))
    count = mask.to(x.dtype).sum() * x[0, 0].numel()
    divisor = count.clamp(min=1)
    mean = (x * weight).sum(over) / divisor
    variance = ((x - _per_channel(mean, x)).square() * weight).sum(over) / divisor
    return mean, variance, count


class MaskedBatchNorm(nn.Module):
    """Batch normalisation over the real rows of [B, F] or [B, F, H, W]; `weight` and `bias` are [F].

    The new running statistics are assigned, not written in place, so that `torch.func.functional_call` returns
    them in the dict of tensors it was given.

    Args:
        n_channels: F.
        momentum: weight of the new batch in the running statistics, in [0, 1].
        eps: added to the variance.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, n_channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum = momentum
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(n_channels))
        self.bias = nn.Parameter(torch.zeros(n_channels))
        self.register_buffer("running_mean", torch.zeros(n_channels))
        self.register_buffer("running_var", torch.ones(n_channels))

    def forward(self, x: Tensor, mask: Tensor, train: bool) -> Tensor:
        wide = x.to(self.weight.dtype)  # statistics of a half-precision batch are taken in full precision
        if train:
            mean, variance, count = batch_statistics(wide, mask)
            self._move(mean.detach(), variance.detach(), count.detach())
        else:
            mean, variance = self.running_mean, self.running_var
        scale = self.weight * torch.rsqrt(variance + self.eps)
        normal = (wide - _per_channel(mean, x)) * _per_channel(scale, x) + _per_channel(self.bias, x)
        return normal.to(x.dtype)

    def _move(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Updates the running statistics; one that the batch does not define keeps its old value."""
        unbiased = variance * (count / (count - 1).clamp(min=1))
        towards_mean = self.momentum * (count > 0).to(mean.dtype)
        towards_variance = self.momentum * (count > 1).to(mean.dtype)
        self.running_mean = self.running_mean + towards_mean * (mean - self.running_mean)
        self.running_var = self.running_var + towards_variance * (unbiased - self.running_var)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[-1]}, momentum={self.momentum}, eps={self.eps}"


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    """Reshapes [F] to broadcast over [B, F, ...]."""
    return values.reshape([1, -1] + [1] * (like.dim() - 2))
