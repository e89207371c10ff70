"""Dropout with planned noise: a pure function of (key of the example, layer, position).

    y = x * [u >= rate] / (1 - rate),     u = hash(key, layer, position) in [0, 1)

Srivastava et al., JMLR 15, 2014, in the inverted form of today's frameworks; the hash is the counter-based
SplitMix64 (Steele, Lea and Flood, OOPSLA 2014; https://doi.org/10.1145/2660193.2660195).

Deviations: the noise comes from no generator, so it is the same on every device and engine, whatever the
order or packing of the rows, and in every precision (u has 24 bits, exact in float32).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from idiolect.errors import UserError

__all__ = [
    "PlannedAlphaDropout",
    "PlannedChannelDropout",
    "PlannedDropout",
    "PlannedFeatureAlphaDropout",
    "planned_uniform",
]

_ALPHA = -1.7580993408473766  # the value that SELU tends to

# SplitMix64's constants, written as the signed integers with the same 64 bits; int64 products wrap around.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_PER_GOLDEN = 0xF1DE83E19937733D - 2**64  # golden * per_golden = 1 modulo 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def planned_uniform(key: Tensor, layer: int, n_positions: int) -> Tensor:
    """Returns u[b, j] in [0, 1), float32 [B, n_positions]: a hash of (key[b], layer, j) and of nothing else.

    Args:
        key: [B] int64, one per example.
        layer: separates the layers of one net, >= 0.
        n_positions: how many numbers each example needs.
    """
    stream = _mix(_mix(key) + _signed(_GOLDEN * (layer + 1)))
    # stream + position * golden.  A compiler that knows positions as indices of 32 bits must not multiply them by a
    # constant of 64, so that they are added to the stream, which is data, before the multiplication.
    positions = torch.arange(1, n_positions + 1, device=key.device)
    bits = _mix(((stream * _PER_GOLDEN).unsqueeze(-1) + positions) * _GOLDEN)
    return _shift(bits, 40).to(torch.float32) * 2.0**-24


class PlannedDropout(nn.Module):
    """Inverted dropout with planned noise; the identity in eval mode and at rate 0.

    Args:
        rate: probability that a value is dropped, in [0, 1).
        index: number of this dropout layer in its net; two layers with one index drop the same positions.
    """

    def __init__(self, rate: float, index: int) -> None:
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise UserError(f"dropout rate {rate!r} is outside [0, 1)")
        self.rate = rate
        self.index = index

    def forward(self, x: Tensor, key: Tensor, train: bool) -> Tensor:
        if not train or self.rate == 0.0:
            return x
        return self.dropped(x, self.kept(x, key).to(x.dtype))

    def kept(self, x: Tensor, key: Tensor) -> Tensor:
        """Returns which values of x [B, ...] are kept, in its shape or one that broadcasts to it."""
        return (planned_uniform(key, self.index, x[0].numel()) >= self.rate).reshape(x.shape)

    def dropped(self, x: Tensor, kept: Tensor) -> Tensor:
        return x * kept / (1.0 - self.rate)

    def extra_repr(self) -> str:
        return f"rate={self.rate}, index={self.index}"


class PlannedChannelDropout(PlannedDropout):
    """Drops whole channels of [B, C, ...], as torch.nn.Dropout1d, 2d and 3d do (Tompson et al., CVPR 2015)."""

    def kept(self, x: Tensor, key: Tensor) -> Tensor:
        kept = planned_uniform(key, self.index, x.shape[1]) >= self.rate
        return kept.reshape(*x.shape[:2], *[1] * (x.dim() - 2))


class PlannedAlphaDropout(PlannedDropout):
    """Keeps mean and variance of self-normalising networks, as torch.nn.AlphaDropout (Klambauer et al., NeurIPS 2017).

    y = a (x d + alpha' (1 - d)) + b,     a = ((1 - rate) (1 + rate alpha'^2))^(-1/2),  b = -a rate alpha'
    """

    def dropped(self, x: Tensor, kept: Tensor) -> Tensor:
        scale = ((1.0 - self.rate) * (1.0 + self.rate * _ALPHA**2)) ** -0.5
        shifted: Tensor = scale * (x * kept + _ALPHA * (1.0 - kept)) - scale * self.rate * _ALPHA
        return shifted


class PlannedFeatureAlphaDropout(PlannedAlphaDropout, PlannedChannelDropout):
    """Alpha dropout of whole channels, as torch.nn.FeatureAlphaDropout."""


def _mix(z: Tensor) -> Tensor:
    """Applies the finaliser of SplitMix64: a bijection of 64-bit integers; each input bit changes every output bit."""
    z = (z ^ _shift(z, 30)) * _FIRST
    z = (z ^ _shift(z, 27)) * _SECOND
    return z ^ _shift(z, 31)


def _shift(z: Tensor, places: int) -> Tensor:
    """Shifts right logically: torch's shift copies the sign into the vacated bits, which are masked here."""
    return (z >> places) & ((1 << (64 - places)) - 1)


def _signed(value: int) -> int:
    """Returns the signed 64-bit integer with the low 64 bits of `value`."""
    return (value + 2**63) % 2**64 - 2**63
