"""A model in a Python file of the user's: `net.py:build` names the file and the builder in it."""

from __future__ import annotations

import hashlib
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from idiolect.errors import UserError
from idiolect.models.registered_models import name_of_model
from idiolect.option_parsing import parse_call, write_call

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
    module = _loaded(path, digest)
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


def _loaded(path: Path, digest: str) -> ModuleType:
    """Runs a file as a module of its own, unless the same text has run already."""
    name = f"idiolect_model_file_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{digest[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path, loader=SourceFileLoader(name, str(path)))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, UserError) or not isinstance(error, Exception | SystemExit):
            raise
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"the model file {path} cannot be run: {type(error).__name__} {reason}") from error
    return module
