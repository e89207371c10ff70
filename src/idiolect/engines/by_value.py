"""Methods, networks and data as bytes that a fresh process can read.

A method is a chain of functions made by other functions, and a user's own may stand in a script, a notebook or a
file that no process can import: such functions and classes travel by value, all others by name.
"""

from __future__ import annotations

import io
import pickle
import sys
from functools import cache
from types import FunctionType
from typing import Any

import cloudpickle
import torch
from torch import Tensor

__all__ = ["dumped"]


def dumped(value: Any, buffers: list[pickle.PickleBuffer]) -> bytes:
    """What ``pickle.loads`` makes an equal value of; the memory of arrays and tensors is put into ``buffers``."""
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is Tensor and _is_like_an_array(obj):
            return torch.from_numpy, (obj.numpy(),)
        if isinstance(obj, FunctionType | type):
            _travel_by_value(obj.__module__)
        return super().reducer_override(obj)


def _is_like_an_array(tensor: Tensor) -> bool:
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return plain and tensor.dtype != torch.bfloat16 and not (tensor.is_conj() or tensor.is_neg())


@cache
def _travel_by_value(module: str | None) -> None:
    """Registers a module that is here but that a process with the same path could not import."""
    if module is None or module == "__main__" or module not in sys.modules:
        return  # cloudpickle takes these by value
    root = module.partition(".")[0]
    if not any(finder.find_spec(root, None) for finder in sys.meta_path):
        cloudpickle.register_pickle_by_value(sys.modules[module])
