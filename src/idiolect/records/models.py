"""Exported models: safetensors files that need nothing of this library to be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

from idiolect.records.tensors import write_tensors

__all__ = ["export_model"]


def export_model(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Path:
    """Writes a model's tensors atomically, making the folder if need be; gives the path back.

    Args:
        path: where to; a file there is replaced.
        tensors: parameters and buffers by name.
        metadata: what the model is (method, dataset, client, classes, ...); a checksum is added as `sha256`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, tensors, metadata)
    return path
