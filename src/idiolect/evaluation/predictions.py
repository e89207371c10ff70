"""One predictor's logits on many clients' samples, with the quantities that several metrics share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["Predictions", "collect_predictions"]


@dataclass(frozen=True)
class Predictions:
    """One predictor's logits on the samples of several clients, on the CPU in float64.

    The samples of a client follow one another.

    Args:
        owner: the client of each sample, by its place in `sizes`.
        sizes: the number of samples of each client.
    """

    logits: Tensor  # [N, K]
    labels: Tensor  # [N]
    owner: Tensor  # [N]
    sizes: Tensor  # [clients]

    @cached_property
    def label_rank(self) -> Tensor:
        """[N] Number of classes ranked before the label; among equal logits the first class comes first."""
        own, classes = self.logits.gather(1, self.labels[:, None]), torch.arange(self.logits.shape[1])
        behind = (self.logits < own) | ((self.logits == own) & (classes >= self.labels[:, None]))
        return self.logits.shape[1] - behind.sum(1)

    @cached_property
    def largest(self) -> tuple[Tensor, Tensor]:
        """[N] The largest logit and its class."""
        values, classes = self.logits.max(1)
        return values, classes

    @cached_property
    def normaliser(self) -> Tensor:
        """[N] log sum exp of the logits, so that log softmax(z)_c = z_c - normaliser."""
        return self.logits.logsumexp(1)

    @property
    def predicted(self) -> Tensor:
        """[N] The class with the largest logit."""
        return self.largest[1]

    @cached_property
    def negative_log_likelihood(self) -> Tensor:
        """[N] -log softmax(logits)[label]."""
        return self.normaliser - self.logits.gather(1, self.labels[:, None])[:, 0]

    @cached_property
    def confidence(self) -> Tensor:
        """[N] The largest softmax probability."""
        return (self.largest[0] - self.normaliser).exp()

    def total(self, each: Tensor) -> Tensor:
        """Returns [clients] the sum of ``each`` over a client's samples."""
        return torch.bincount(self.owner, each.double(), len(self.sizes))

    def mean(self, each: Tensor) -> Tensor:
        """Returns [clients] the mean of ``each`` over a client's samples; NaN for a client without samples."""
        return self.total(each) / self.sizes

    def table(self, column: Tensor, columns: int, each: Tensor | None = None) -> Tensor:
        """Returns [clients, columns] the number of samples in each column, or the sum of ``each`` over them."""
        cell = self.owner * columns + column
        weights = torch.ones(len(cell), dtype=torch.float64) if each is None else each.double()
        return torch.bincount(cell, weights, len(self.sizes) * columns).reshape(-1, columns)


def collect_predictions(logits: Sequence[Tensor], labels: Sequence[Tensor]) -> Predictions:
    """Joins one predictor's logits [n_k, K] and labels [n_k], given client by client."""
    sizes = torch.tensor([len(y) for y in labels])
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    return Predictions(torch.cat(list(logits)).cpu().double(), torch.cat(list(labels)).cpu(), owner, sizes)
