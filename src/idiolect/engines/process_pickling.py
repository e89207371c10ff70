"""Pickles programs for other processes, with the networks and functions of the user's own that they hold.

A method is a chain of functions made by other functions, and a user's own functions may stand in a script, a notebook
or a file that no process can import: such functions and classes are pickled by value, all others by name.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import cloudpickle
import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.utils import parametrize

from idiolect.core import Program
from idiolect.errors import UserError

__all__ = ["UNSENDABLE", "cannot_be_sent", "dumped"]

UNSENDABLE = (pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError)  # what pickle raises


def dumped(value: Any, take_buffer: Callable[[pickle.PickleBuffer], None] | None = None) -> bytes:
    """Pickles a value for a fresh process, which reads it with ``pickle.loads``.

    Args:
        take_buffer: is given the memory of each array and tensor, which is then not part of the bytes.
    """
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=take_buffer).dump(value)
    return file.getvalue()


def cannot_be_sent(program: Program, error: BaseException) -> UserError:
    """Returns what to raise where pickling a program ends in one of the errors ``UNSENDABLE``."""
    return UserError(
        f"a part, the model or the loss of method {program.method.name} holds something that cannot be sent to "
        f"another process ({error}); use --engine loop"
    )


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles tensors as arrays, and functions and classes by value where no other process can import them."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Tensor and _is_like_an_array(obj):
            return torch.from_numpy, (obj.numpy(),)
        if isinstance(obj, Module) and parametrize.is_parametrized(obj):
            return _parametrised, (type(obj).__bases__[0], dict(vars(obj)))
        if isinstance(obj, FunctionType | type):
            _register_by_value(obj.__module__)
        return super().reducer_override(obj)


def _parametrised(kind: type[Module], attributes: dict[str, Any]) -> Module:
    """Makes a module whose weights are computed, such as by weight_norm; torch pickles no such module itself."""
    module = kind.__new__(kind)
    vars(module).update(attributes)
    parametrize._inject_new_class(module)
    for name in attributes["_modules"]["parametrizations"]:
        parametrize._inject_property(module, name)
    return module


def _is_like_an_array(tensor: Tensor) -> bool:
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return plain and tensor.dtype != torch.bfloat16 and not (tensor.is_conj() or tensor.is_neg())


@cache
def _register_by_value(module: str | None) -> None:
    """Registers a module that is loaded here but that a process with the same path could not import."""
    if module is None or module == "__main__" or module not in sys.modules:
        return  # cloudpickle takes these by value
    root = module.partition(".")[0]
    if not any(finder.find_spec(root, None) for finder in sys.meta_path):
        cloudpickle.register_pickle_by_value(sys.modules[module])
