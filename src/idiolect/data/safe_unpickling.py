"""Safe unpickling: reads a pickle of arrays and lists without running what it asks for.

A pickle is a program: it names functions and calls them.  Here every name is looked up in a short table of
inert stand-ins that only remember what they were given, so the file calls nothing of numpy, let alone of the
system; the arrays are then built from the remembered bytes.  Any other name is refused.

Source: the Python documentation, module `pickle`, section "Restricting Globals".
"""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

from idiolect.data.dataset import Array
from idiolect.errors import UserError

__all__ = ["read_pickled_dict"]


class _Dtype:
    """Remembers the arguments of numpy.dtype: a code such as 'u1', and its byte order."""

    def __init__(self, code: str | bytes = "", *_: Any) -> None:
        self.code = _text(code)
        self.order = "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = _text(state[1])


class _Array:
    """Remembers the state of a numpy.ndarray: shape, type, order, bytes."""

    def __init__(self, *_: Any) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state[-4:]

    def build(self) -> Array:
        shape, dtype, fortran, raw = self.state
        if not re.fullmatch("[ui][1248]", dtype.code) or dtype.order not in ("|", "<", ">", "="):
            raise ValueError(f"array of type {dtype.code!r}, expected integers")
        flat = np.frombuffer(raw, np.dtype(dtype.code).newbyteorder(dtype.order))
        built = flat.reshape(shape, order="F" if fortran else "C")
        return built.astype(built.dtype.newbyteorder("="), order="C", copy=True)


def _reconstruct(*_: Any) -> _Array:
    """Replaces numpy's function of that name: returns an array without its state."""
    return _Array()


def _from_buffer(raw: Any, dtype: _Dtype, shape: tuple[int, ...], order: str) -> _Array:
    """Replaces numpy's `_frombuffer`, which pickle protocol 5 uses."""
    array = _Array()
    array.state = (shape, dtype, order == "F", raw)
    return array


def _encode(text: str, encoding: str) -> bytes:
    """Replaces `_codecs.encode`, by which Python 3 writes bytes in protocol 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r}, expected 'latin1'")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
}


class _RefusedGlobal(pickle.UnpicklingError):
    """The file named something that is not in the table."""


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _STAND_INS[module_name, global_name]
        except KeyError:
            raise _RefusedGlobal(f"{module_name}.{global_name}") from None


def read_pickled_dict(raw: bytes, path: Path, advice: str) -> dict[str, Any]:
    """Returns the dictionary in a pickle, its keys as str and its arrays as numpy arrays.

    Args:
        raw: the file's bytes, written by Python 2 or 3.
        path, advice: for the error messages: which file, and how to get it again.
    """
    try:
        found = _InertUnpickler(io.BytesIO(raw), encoding="bytes").load()
        if not isinstance(found, dict):
            raise ValueError(f"a {type(found).__name__}, expected a dictionary")
        return {
            _text(key): value.build() if isinstance(value, _Array) else value for key, value in found.items()
        }
    except _RefusedGlobal as refused:
        raise UserError(
            f"{path} asks Python to load {refused}, which a dataset has no need of; it was refused and "
            f"nothing was run; {advice}"
        ) from refused
    except Exception as problem:  # a broken pickle may raise anything at all
        raise UserError(
            f"{path} is not a whole pickle of arrays and lists ({problem}); {advice}"
        ) from problem


def _text(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)
