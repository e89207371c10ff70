"""The idx format of MNIST and Fashion-MNIST, plain or gzipped.

    0 0 | type | n_dims | size_1 .. size_n (big-endian uint32) | values, row-major

Type 0x08 is unsigned byte, the only one these datasets use.
Source: Y. LeCun, C. Cortes and C. Burges, "The MNIST database",
http://yann.lecun.com/exdb/mnist/, section "File formats".
"""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from idiolect.data.location import file_in
from idiolect.data.reader_result import Part
from idiolect.data.sources import KnownFile
from idiolect.errors import UserError

__all__ = ["read_idx", "read_idx_part"]

_UNSIGNED_BYTE = 0x08
_ADVICE = "get it with `idiolect datasets get NAME --data-dir DIR`"


def read_idx(path: Path, n_dims: int, advice: str = _ADVICE) -> tuple[npt.NDArray[np.uint8], str]:
    """Reads one idx file of unsigned bytes.

    Args:
        path: the file; unpacked on the way when its name ends in .gz.
        n_dims: 3 for images [N, H, W], 1 for labels [N].
        advice: how to get the file again; ends every error message.

    Returns: the array, and the sha256 of the file as it lies on disk.
    """
    try:
        stored = path.read_bytes()
        raw = gzip.decompress(stored) if path.suffix == ".gz" else stored
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise UserError(f"{path} is not a whole gzip file ({problem}); {advice}") from problem
    except OSError as problem:
        raise UserError(f"cannot read {path} ({problem.strerror or problem}); {advice}") from problem
    return _parse(raw, path, n_dims, advice), hashlib.sha256(stored).hexdigest()


def _parse(raw: bytes, path: Path, n_dims: int, advice: str) -> npt.NDArray[np.uint8]:
    header = 4 + 4 * n_dims
    if len(raw) < 4 or raw[:2] != b"\0\0":
        raise UserError(
            f"{path} is not an idx file: expected it to begin 00 00, found {raw[:4].hex(' ')!r}; {advice}"
        )
    if raw[2] != _UNSIGNED_BYTE:
        raise UserError(f"{path} holds idx type 0x{raw[2]:02x}, expected 0x08 (unsigned bytes); {advice}")
    if raw[3] != n_dims:
        raise UserError(f"{path} holds an idx array of {raw[3]} dimensions, expected {n_dims}; {advice}")
    if len(raw) < header:
        raise UserError(f"{path} ends inside its header: expected {header} bytes, found {len(raw)}; {advice}")
    shape = struct.unpack(f">{n_dims}I", raw[4:header])
    expected = header + math.prod(shape)
    if len(raw) != expected:
        raise UserError(
            f"{path} declares {' x '.join(map(str, shape))} values, so it should have {expected} bytes, "
            f"but it has {len(raw)}; {advice}"
        )
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape).copy()


def read_idx_part(files: tuple[KnownFile, ...], folder: Path, advice: str = _ADVICE) -> Part:
    """Reads an images file and its labels file: rows [N, 1, H, W], labels [N], sha256 by file name."""
    images_path, labels_path = (file_in(folder, file.name) or folder / file.name for file in files)
    images, images_sum = read_idx(images_path, 3, advice)
    labels, labels_sum = read_idx(labels_path, 1, advice)
    if len(images) != len(labels):
        raise UserError(
            f"{images_path} holds {len(images)} images but {labels_path} holds {len(labels)} labels; "
            f"expected as many of each; {advice}"
        )
    sums = {images_path.name: images_sum, labels_path.name: labels_sum}
    return images[:, None], labels.astype(np.int64), sums
