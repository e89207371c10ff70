"""Digests the code that decides numbers, so that server and sites can check that they run the same method.

A deployment can bring code of its own, which registers methods, parts or networks; it is loaded and digested here too.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from idiolect.experiments.run_binding import package_digests
from idiolect.own_code import load_code

__all__ = ["OWN_CODE", "code_digest", "load_own_code"]

OWN_CODE = "own.py"


def code_digest(folder: Path) -> str:
    """Returns the SHA-256 of the packages that a round runs through, and of the folder's own code where it has any."""
    whole = hashlib.sha256("".join(package_digests().values()).encode())
    if (folder / OWN_CODE).exists():
        whole.update((folder / OWN_CODE).read_bytes())
    return whole.hexdigest()


def load_own_code(folder: Path) -> None:
    """Runs the folder's own code, where it has any."""
    if (folder / OWN_CODE).exists():
        load_code(folder / OWN_CODE)
