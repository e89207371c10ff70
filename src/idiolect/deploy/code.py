"""A digest of the code that decides numbers, so that server and sites know that they run one method."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import cache
from pathlib import Path

import idiolect
from idiolect.errors import UserError

__all__ = ["OWN", "code_digest", "load_file", "load_own"]

ROOMS = ("core", "data", "engines", "federation", "layers", "methods", "models", "parts")
OWN = "own.py"
_LOADED: set[str] = set()  # digests of own code that this process has run


def code_digest(folder: Path) -> str:
    """SHA-256 over the sources of the rooms that a round runs through, and the folder's own code if it has some."""
    whole = hashlib.sha256(_rooms().encode())
    if (folder / OWN).exists():
        whole.update((folder / OWN).read_bytes())
    return whole.hexdigest()


def load_own(folder: Path) -> None:
    """Runs the folder's own code, which registers methods, parts or networks; once in a process."""
    if (folder / OWN).exists():
        load_file(folder / OWN)


def load_file(path: Path) -> None:
    """Runs a file of one's own code; the same text once in a process, wherever it lies."""
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
def _rooms() -> str:
    root, whole = Path(idiolect.__file__).parent, hashlib.sha256()
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            whole.update(str(path.relative_to(root)).encode())
            whole.update(path.read_bytes())
    return whole.hexdigest()
