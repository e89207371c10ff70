"""The preprocessing of a run as modules: the first and the last layer of a model that leaves the library."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from idiolect.federation import Preprocessing

__all__ = ["InputPreprocessing", "OutputScale"]


class InputPreprocessing(nn.Module):
    """Makes raw rows into what the network reads, with the operations of the run in the same order.

        x' = (filled(x) / scale - mean) / std        per channel, the first axis of a row

    Args:
        fitted: on the run's training rows; tokens stay as they are.
        n_axes: of a row.
    """

    fill: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self, fitted: Preprocessing, n_axes: int) -> None:
        super().__init__()
        self.scale = fitted.scale
        per_channel = (-1, *(1 for _ in range(n_axes - 1)))
        for name in ("fill", "mean", "std"):
            numbers = torch.tensor(getattr(fitted, name), dtype=torch.float32)
            self.register_buffer(name, numbers.reshape(per_channel) if len(numbers) else numbers)

    def forward(self, x: Tensor) -> Tensor:
        if not len(self.mean):
            return x
        rows = x.to(torch.float32)
        if len(self.fill):
            rows = torch.where(torch.isnan(rows), self.fill, rows)
        if self.scale != 1:
            rows = rows / self.scale
        return (rows - self.mean) / self.std


class OutputScale(nn.Module):
    """Brings predictions of a regression back to the user's units; logits stay as they are."""

    mean: Tensor
    std: Tensor

    def __init__(self, fitted: Preprocessing) -> None:
        super().__init__()
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(getattr(fitted, f"target_{name}"), dtype=torch.float32))

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs * self.std.to(outputs) + self.mean.to(outputs) if len(self.mean) else outputs
