"""The area under the ROC curve: how often a sample with a label is scored above one without it.

AUROC = (1 / (P Q)) sum_{i with, j without} [s_i > s_j] + [s_i = s_j] / 2       P samples with the label, Q without
computed from ranks, equal scores sharing their mean rank     Mann and Whitney 1947; Hanley and McNeil 1982
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.evaluation.predictions import Predictions

__all__ = ["class_auroc", "label_auroc"]


def class_auroc(predictions: Predictions) -> Tensor:
    """Returns the area under the ROC curve of the second of two classes, or the mean over classes against the rest.

    With more than two classes a sample's score of a class is its softmax probability, and classes count that the client
    has samples with and without.  NaN for a client that holds one class only.
    """
    logits, labels = predictions.logits, predictions.labels
    if logits.shape[1] == 2:
        scores, is_class = logits[:, 1:] - logits[:, :1], labels[:, None] == 1
    else:
        scores = logits - predictions.normaliser[:, None]
        is_class = labels[:, None] == torch.arange(logits.shape[1])
    return _areas(predictions, scores, is_class).nanmean(1)


def label_auroc(predictions: Predictions) -> Tensor:
    """Returns the area under the ROC curve, mean over the labels that some of a client's samples have and others lack.

    NaN for a client without such a label.
    """
    return _areas(predictions, predictions.logits, predictions.labels > 0).nanmean(1)


def _areas(predictions: Predictions, scores: Tensor, positive: Tensor) -> Tensor:
    """Returns [clients, K] the area of each column of ``scores`` [N, K]; NaN where one side has no sample."""
    n_positive = predictions.totals(positive)
    n_negative = predictions.sizes[:, None] - n_positive
    ranks = _ranks(scores, predictions.owner, predictions.sizes)
    above = predictions.totals(torch.where(positive, ranks, 0)) - n_positive * (n_positive + 1) / 2
    pairs = n_positive * n_negative
    return torch.where(pairs > 0, above / pairs.clamp(min=1), torch.nan)


def _ranks(scores: Tensor, owner: Tensor, sizes: Tensor) -> Tensor:
    """Returns [N, K] the rank from 1 of each score among those of its client, column by column; equals share a mean."""
    n = len(scores)
    if not n:
        return scores.double()
    by_score = scores.argsort(0)
    order = by_score.gather(0, owner[by_score].argsort(stable=True, dim=0))
    ordered = scores.gather(0, order)
    # The samples of a client follow one another, so that the sorted owners are those of the rows.
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]) | (owner[1:] != owner[:-1])[:, None]
    place = torch.arange(n)[:, None].expand_as(order)
    first = torch.where(fresh, place, 0).cummax(0).values
    last_of_group = torch.ones_like(fresh)
    last_of_group[:-1] = fresh[1:]
    last = torch.where(last_of_group, place, n).flip(0).cummin(0).values.flip(0)
    start = (torch.cumsum(sizes, 0) - sizes)[owner][:, None]
    rank = (first + last).double() / 2 - start + 1
    return torch.empty_like(rank).scatter_(0, order, rank)
