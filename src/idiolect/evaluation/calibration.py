"""Calibration errors: how far a predictor's confidence lies from its accuracy.

ECE = sum_b n_b/n |acc_b - conf_b|,   MCE = max_b |acc_b - conf_b|
over bins (l, u] of equal width, by the largest softmax probability
Guo et al., ICML 2017, eq. (3) and (5), https://arxiv.org/abs/1706.04599
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from idiolect.evaluation.predictions import Predictions

__all__ = ["BINS", "bins_of", "expected_calibration_error", "in_batches", "maximum_calibration_error"]

BINS = 15


def bins_of(confidence: Tensor, bins: int = BINS) -> Tensor:
    """Returns [N] the bin (l, u] of each confidence.

    >>> bins_of(torch.tensor([0.1, 0.5, 0.51, 1.0]), 2).tolist()
    [0, 0, 1, 1]
    """
    upper = torch.arange(1, bins, dtype=torch.float64) / bins
    return torch.bucketize(confidence, upper)


def _bins(predictions: Predictions, bins: int) -> tuple[Tensor, Tensor]:
    """Returns [clients, bins] the number of samples, and |sum of hits - sum of confidences|."""
    place = bins_of(predictions.confidence, bins)
    hits = predictions.label_rank == 0
    gaps = predictions.table(place, bins, hits.double() - predictions.confidence).abs()
    return predictions.table(place, bins), gaps


def expected_calibration_error(predictions: Predictions, bins: int = BINS) -> Tensor:
    """Returns [clients] the gap between accuracy and confidence, averaged over the samples of all bins."""
    _, gaps = _bins(predictions, bins)
    return gaps.sum(1) / predictions.sizes


def maximum_calibration_error(predictions: Predictions, bins: int = BINS) -> Tensor:
    """Returns [clients] the largest gap of a bin that holds a sample; NaN for a client without samples."""
    counts, gaps = _bins(predictions, bins)
    worst = torch.where(counts > 0, gaps / counts.clamp(min=1), 0).amax(1)
    return torch.where(predictions.sizes > 0, worst, torch.nan)


def in_batches(metric: Callable[[Predictions], Tensor], predictions: Predictions, batch_size: int) -> Tensor:
    """Returns [clients] ``metric`` on consecutive batches of ``batch_size`` samples, averaged over a client's batches.

    SuPerFed's code measures this way; small batches push a calibration error upwards.
    """
    batches = -(-predictions.sizes // batch_size)
    first_sample, first_batch = (torch.cumsum(n, 0) - n for n in (predictions.sizes, batches))
    place = torch.arange(len(predictions.labels)) - first_sample[predictions.owner]
    owner = first_batch[predictions.owner] + place // batch_size
    sizes = torch.bincount(owner, minlength=int(batches.sum()))
    each = metric(replace(predictions, owner=owner, sizes=sizes))
    holder = torch.repeat_interleave(torch.arange(len(batches)), batches)
    return torch.bincount(holder, each, len(batches)) / batches
