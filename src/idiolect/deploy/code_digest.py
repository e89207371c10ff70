"""Digests the code that decides numbers, so that server and sites can check that they run the same method.

A deployment can bring code of its own, which registers methods, parts or networks; it is loaded and digested here too.
"""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from pathlib import Path

import idiolect
from idiolect.errors import UserError

__all__ = ["OWN_CODE", "code_digest", "load_file", "load_own_code"]

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
_LOADED: set[str] = set()  # digests of the files that this process has run


def code_digest(folder: Path) -> str:
    """Returns the SHA-256 of the packages that a round runs through, and of the folder's own code where it has any."""
    whole = hashlib.sha256(_package_digest().encode())
    if (folder / OWN_CODE).exists():
        whole.update((folder / OWN_CODE).read_bytes())
    return whole.hexdigest()


def load_own_code(folder: Path) -> None:
    """Runs the folder's own code, where it has any."""
    if (folder / OWN_CODE).exists():
        load_file(folder / OWN_CODE)


def load_file(path: Path) -> None:
    """Runs a Python file that registers methods, parts or networks; the same text runs once in a process."""
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    _run(path.read_bytes(), path.resolve())


def _run(content: bytes, path: Path) -> None:
    key = hashlib.sha256(content).hexdigest()
    if key in _LOADED:
        return
    spec = importlib.util.spec_from_file_location("idiolect_own", path)
    assert spec is not None and spec.loader is not None
    try:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} cannot be run: {type(error).__name__} {error}") from error
    _LOADED.add(key)


@cache
def _package_digest() -> str:
    root, whole = Path(idiolect.__file__).parent, hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            whole.update(str(path.relative_to(root)).encode())
            whole.update(path.read_bytes())
    return whole.hexdigest()
