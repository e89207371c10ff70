"""What a predictor said about many clients' samples, with all that several metrics need computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

__all__ = ["Judged", "judge"]


@dataclass(frozen=True)
class Judged:
    """One predictor on the samples of several clients, who follow one another; on the CPU in float64.

    Args:
        owner: place of the client that each sample belongs to.
        sizes: samples of each client.
    """

    logits: Tensor  # [N, K]
    labels: Tensor  # [N]
    owner: Tensor  # [N]
    sizes: Tensor  # [clients]

    @cached_property
    def ahead(self) -> Tensor:
        """[N] classes with a larger logit than the label's; among equal logits the first class wins."""
        own, classes = self.logits.gather(1, self.labels[:, None]), torch.arange(self.logits.shape[1])
        behind = (self.logits < own) | ((self.logits == own) & (classes >= self.labels[:, None]))
        return self.logits.shape[1] - behind.sum(1)

    @cached_property
    def largest(self) -> tuple[Tensor, Tensor]:
        """[N] the largest logit and its class."""
        return self.logits.max(1)

    @cached_property
    def normaliser(self) -> Tensor:
        """[N] log sum exp of the logits, so that log softmax(z)_c = z_c - normaliser."""
        return self.logits.logsumexp(1)

    @property
    def guess(self) -> Tensor:
        """[N] the class with the largest logit."""
        return self.largest[1]

    @cached_property
    def surprise(self) -> Tensor:
        """[N] -log softmax(logits)[label]."""
        return self.normaliser - self.logits.gather(1, self.labels[:, None])[:, 0]

    @cached_property
    def confidence(self) -> Tensor:
        """[N] the largest softmax probability."""
        return (self.largest[0] - self.normaliser).exp()

    def total(self, each: Tensor) -> Tensor:
        """[clients] sum over each client's samples."""
        return torch.bincount(self.owner, each.double(), len(self.sizes))

    def mean(self, each: Tensor) -> Tensor:
        """[clients] mean over each client's samples; NaN for a client without any."""
        return self.total(each) / self.sizes

    def table(self, column: Tensor, columns: int, each: Tensor | None = None) -> Tensor:
        """[clients, columns] samples in each column, or the sum of ``each`` over them."""
        cell = self.owner * columns + column
        weights = torch.ones(len(cell), dtype=torch.float64) if each is None else each.double()
        return torch.bincount(cell, weights, len(self.sizes) * columns).reshape(-1, columns)


def judge(logits: Sequence[Tensor], labels: Sequence[Tensor]) -> Judged:
    """One predictor's logits [n_k, K] and the labels [n_k], client by client."""
    sizes = torch.tensor([len(y) for y in labels])
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    return Judged(torch.cat(list(logits)).cpu().double(), torch.cat(list(labels)).cpu(), owner, sizes)
