"""Digests the code that decides numbers, so that server and sites can check that they run the same method.

A deployment can bring code of its own, which registers methods, parts or networks; it is loaded and digested here too.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import idiolect
from idiolect.own_code import load_code

__all__ = ["OWN_CODE", "code_digest", "load_own_code"]

PACKAGES = (
    "core",
    "data",
    "engines",
    "evaluation",
    "experiments",
    "federation",
    "methods",
    "models",
    "parts",
)
OWN_CODE = "own.py"


def code_digest(folder: Path) -> str:
    """Returns the SHA-256 of the packages that a round runs through, and of the folder's own code where it has any."""
    whole = hashlib.sha256(_package_digest().encode())
    if (folder / OWN_CODE).exists():
        whole.update((folder / OWN_CODE).read_bytes())
    return whole.hexdigest()


def load_own_code(folder: Path) -> None:
    """Runs the folder's own code, where it has any."""
    if (folder / OWN_CODE).exists():
        load_code(folder / OWN_CODE)


@cache
def _package_digest() -> str:
    root, whole = Path(idiolect.__file__).parent, hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            whole.update(str(path.relative_to(root)).encode())
            whole.update(path.read_bytes())
    return whole.hexdigest()
