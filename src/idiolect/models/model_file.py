"""A model in a Python file of the user's: `net.py:build` names the file and the builder in it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from idiolect.errors import UserError
from idiolect.models.registered_models import name_of_model
from idiolect.option_parsing import parse_call, write_call
from idiolect.own_code import run_file

__all__ = ["ModelFile", "file_of_model", "load_model_file", "load_recorded"]


class ModelFile(NamedTuple):
    """Where a model comes from, as a record keeps it."""

    path: str
    sha256: str
    builder: str


_FILES: dict[str, ModelFile] = {}  # by the name of the model


def load_model_file(text: str) -> str:
    """Registers a model of a file and returns its name, with options where they are given.

    The file runs once, until its text changes.

    Args:
        text: `path.py:builder`, or `path.py:builder(width=8)` with options of the builder.

    Raises:
        UserError: the file cannot be read, fails when it runs, or has no such builder.
    """
    place, colon, call = text.rpartition(":")
    if not colon or not place or not call:
        raise UserError(f"the model file {text!r} names no builder; write path.py:builder")
    builder, options = parse_call(call)
    path = Path(place).expanduser().resolve()
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"the model file {place} cannot be read: {error.strerror}") from None
    module = run_file(str(path))
    if not hasattr(module, builder):
        own = [n for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__]
        known = f"it defines {', '.join(own)}" if own else "it defines no function or class"
        raise UserError(f"the model file {place} has no builder {builder!r}; {known}")
    name = name_of_model(getattr(module, builder))
    _FILES[name] = ModelFile(str(path), digest, builder)
    return write_call(name, options)


def load_recorded(file: ModelFile) -> None:
    """Registers a model of a file again, as it was when a record was written.

    Raises:
        UserError: the file has gone or its text is another one.
    """
    path = Path(file.path)
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != file.sha256:
        raise UserError(
            f"the model file {path} is not the one that was used any more; put it back, or load the model by "
            "--model-file"
        )
    load_model_file(f"{path}:{file.builder}")


def file_of_model(spec: str) -> ModelFile | None:
    """Returns the file that a model comes from; None for a model that comes from no file."""
    return _FILES.get(parse_call(spec)[0])
