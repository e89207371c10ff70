"""Numerical precisions by name: the dtypes of storage and of computation, and whether a GPU may use TF32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

__all__ = ["PRECISIONS", "Precision"]


class Precision(NamedTuple):
    """The dtypes that a run stores and computes in.

    Args:
        storage: the dtype of parameters, data, losses and optimisers.
        compute: the dtype of networks, forward and backward.
        tf32: lets matrix products of float32 round their factors to TF32's 10 bits, on devices that can.
    """

    storage: torch.dtype
    compute: torch.dtype
    tf32: bool = False

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Sets PyTorch's switches for TF32 to what this precision allows, and back at the end."""
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        self._set("high" if self.tf32 else "highest", self.tf32)
        try:
            yield
        finally:
            self._set(*before)

    @staticmethod
    def _set(products: str, convolutions: bool) -> None:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions


PRECISIONS = {
    "float64": Precision(torch.float64, torch.float64),
    "float32": Precision(torch.float32, torch.float32),
    "tf32": Precision(torch.float32, torch.float32, tf32=True),
    "bf16": Precision(torch.float32, torch.bfloat16, tf32=True),
}
