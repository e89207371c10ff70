"""One predictor's outputs on many clients' samples, with the quantities that several metrics share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["Predictions", "Units", "collect_predictions"]

Units = tuple[Sequence[float], Sequence[float]]  # mean and deviation of each target in the user's units


@dataclass(frozen=True)
class Predictions:
    """One predictor's outputs on the samples of several clients, on the CPU in float64.

    The samples of a client follow one another.

    Args:
        logits: what the network gives; for regression the standardised targets that it predicts.
        labels: classes [N]; or, without classes, numbers [N, K] on the scale of the outputs.
        owner: the client of each sample, by its place in `sizes`.
        sizes: the number of samples of each client.
        units: mean and deviation [2, K] by which targets were standardised.
    """

    logits: Tensor  # [N, K]
    labels: Tensor  # [N] or [N, K]
    owner: Tensor  # [N]
    sizes: Tensor  # [clients]
    units: Tensor | None = None

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

    @cached_property
    def held(self) -> Tensor:
        """[clients, K] Samples of each class."""
        return self.table(self.labels, self.logits.shape[1])

    @cached_property
    def found(self) -> Tensor:
        """[clients, K] Samples of each class that are predicted as such."""
        hits = (self.predicted == self.labels).double()
        return self.table(self.labels, self.logits.shape[1], hits)

    @property
    def outputs(self) -> Tensor:
        """[N, K] Predicted targets in the user's units."""
        return self.logits if self.units is None else self.logits * self.units[1] + self.units[0]

    @property
    def targets(self) -> Tensor:
        """[N, K] True targets in the user's units."""
        return self.labels if self.units is None else self.labels * self.units[1] + self.units[0]

    def total(self, each: Tensor) -> Tensor:
        """Returns [clients] the sum of ``each`` over a client's samples."""
        return torch.bincount(self.owner, each.double(), len(self.sizes))

    def mean(self, each: Tensor) -> Tensor:
        """Returns [clients] the mean of ``each`` over a client's samples; NaN for a client without samples."""
        return self.total(each) / self.sizes

    def totals(self, each: Tensor) -> Tensor:
        """Returns [clients, K] the sum of ``each`` [N, K] over a client's samples."""
        sums = torch.zeros(len(self.sizes), each.shape[1], dtype=torch.float64)
        return sums.index_add_(0, self.owner, each.double())

    def table(self, column: Tensor, columns: int, each: Tensor | None = None) -> Tensor:
        """Returns [clients, columns] the number of samples in each column, or the sum of ``each`` over them."""
        cell = self.owner * columns + column
        weights = torch.ones(len(cell), dtype=torch.float64) if each is None else each.double()
        return torch.bincount(cell, weights, len(self.sizes) * columns).reshape(-1, columns)


def collect_predictions(
    logits: Sequence[Tensor], labels: Sequence[Tensor], units: Units | None = None
) -> Predictions:
    """Joins one predictor's logits [n_k, K] and labels [n_k] or [n_k, K], given client by client.

    Args:
        units: by which the targets of a regression were standardised.
    """
    sizes = torch.tensor([len(y) for y in labels])
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    targets = torch.cat(list(labels)).cpu()
    if targets.is_floating_point():
        targets = targets.double()
    scale = None if units is None else torch.tensor([list(units[0]), list(units[1])], dtype=torch.float64)
    return Predictions(torch.cat(list(logits)).cpu().double(), targets, owner, sizes, scale)
