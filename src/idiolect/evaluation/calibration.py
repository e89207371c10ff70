"""Calibration: how far a predictor's confidence lies from its accuracy.

ECE = sum_b n_b/n |acc_b - conf_b|,   MCE = max_b |acc_b - conf_b|
over bins (l, u] of equal width, by the largest softmax probability
Guo et al., ICML 2017, eq. (3) and (5), https://arxiv.org/abs/1706.04599
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from idiolect.evaluation.judged import Judged

__all__ = ["BINS", "expected_calibration_error", "in_batches", "maximum_calibration_error"]

BINS = 15


def _bins(judged: Judged, bins: int) -> tuple[Tensor, Tensor]:
    """[clients, bins] samples, and |sum of hits - sum of confidences|."""
    upper = torch.arange(1, bins, dtype=torch.float64) / bins
    place = torch.bucketize(judged.confidence, upper)
    hits = judged.ahead == 0
    return judged.table(place, bins), judged.table(place, bins, hits.double() - judged.confidence).abs()


def expected_calibration_error(judged: Judged, bins: int = BINS) -> Tensor:
    """[clients] gap between accuracy and confidence, averaged over the samples of all bins."""
    _, gaps = _bins(judged, bins)
    return gaps.sum(1) / judged.sizes


def maximum_calibration_error(judged: Judged, bins: int = BINS) -> Tensor:
    """[clients] the largest gap of a bin that holds a sample; NaN for a client without any."""
    counts, gaps = _bins(judged, bins)
    worst = torch.where(counts > 0, gaps / counts.clamp(min=1), 0).amax(1)
    return torch.where(judged.sizes > 0, worst, torch.nan)


def in_batches(metric: Callable[[Judged], Tensor], judged: Judged, batch_size: int) -> Tensor:
    """[clients] ``metric`` of every ``batch_size`` samples in turn, averaged over a client's batches.

    The way of SuPerFed's code; small batches push a calibration error upwards.
    """
    batches = -(-judged.sizes // batch_size)
    first_sample, first_batch = (torch.cumsum(n, 0) - n for n in (judged.sizes, batches))
    place = torch.arange(len(judged.labels)) - first_sample[judged.owner]
    owner = first_batch[judged.owner] + place // batch_size
    sizes = torch.bincount(owner, minlength=int(batches.sum()))
    each = metric(replace(judged, owner=owner, sizes=sizes))
    holder = torch.repeat_interleave(torch.arange(len(batches)), batches)
    return torch.bincount(holder, each, len(batches)) / batches
