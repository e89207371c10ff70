"""Tensors in safetensors files, with a checksum over names, values and metadata."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from idiolect.records.atomic_files import replacing

__all__ = [
    "DamagedFile",
    "export_model",
    "read_metadata",
    "read_plain_tensors",
    "read_tensors",
    "write_tensors",
]

CHECKSUM = "sha256"


class DamagedFile(Exception):
    """A file is truncated, altered or of another kind; the message says which."""


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Writes tensors and metadata atomically, with a checksum of both in the metadata.

    Tensors are copied to the host.  Tensors that share memory are stored separately.
    """
    plain = _apart(tensors)
    with replacing(path) as temporary:
        save_file(plain, temporary, metadata={**metadata, CHECKSUM: _checksum(plain, metadata)})


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Reads what `write_tensors` wrote.

    Raises:
        DamagedFile: the file is truncated, altered, or of another kind.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedFile(f"{path.name} cannot be read: {error}") from error
    if metadata.pop(CHECKSUM, None) != _checksum(tensors, metadata):
        raise DamagedFile(f"{path.name} does not match its checksum")
    return tensors, metadata


def read_plain_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Reads the tensors of any safetensors file.

    Raises:
        DamagedFile: the file is truncated or of another kind.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedFile(f"{path.name} cannot be read: {error}") from error


def read_metadata(path: Path) -> dict[str, str]:
    """Reads the metadata alone, without the checksum.

    Raises:
        DamagedFile: the file is truncated or of another kind.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedFile(f"{path.name} cannot be read: {error}") from error


def _apart(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns contiguous host tensors, no two of which share memory, because the format refuses that."""
    apart: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        memory = plain.untyped_storage().data_ptr()
        apart[name] = plain.clone() if memory in seen else plain
        seen.add(memory)
    return apart


def _checksum(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256(repr(sorted(metadata.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def export_model(path: str | Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> Path:
    """Writes a model's tensors atomically, with the folder where it is missing, and returns the path.

    Any reader of safetensors can open the file.

    Args:
        path: where to; a file there is replaced.
        tensors: parameters and buffers by name.
        metadata: what the model is (method, dataset, client, classes, ...); a checksum is added as `sha256`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, tensors, metadata)
    return path
