"""Writes files that are either complete or absent, and computes their checksums."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["file_digest", "replacing", "sync_folder", "write_atomically"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path` and renames it to `path` when the block ends without an exception.

    The file is synchronised to the disk before the rename, so a loss of power leaves the old file or the new one.
    When the block raises, the temporary file is removed and `path` stays as it was; an error of the system that names
    no file, such as that of a full disk, names `path` from here on.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes | str) -> Path:
    """Writes bytes, or text as UTF-8, atomically and returns the path."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def sync_folder(folder: Path) -> None:
    """Synchronises a rename within `folder` to the disk, on systems where a folder can be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_digest(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
