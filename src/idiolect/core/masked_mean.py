"""The mean over the real rows of a padded batch."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["mean_over_rows"]


def mean_over_rows(each: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean of ``each`` [B] over the rows whose ``mask`` [B] is 1, or 0 if there is none.

    >>> mean_over_rows(torch.tensor([1.0, 3.0, torch.inf]), torch.tensor([1.0, 1.0, 0.0]))
    tensor(2.)
    """
    return torch.where(mask > 0, each, 0).sum() / mask.sum().clamp(min=1)
