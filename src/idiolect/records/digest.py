"""Checksums of files."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["file_digest"]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
