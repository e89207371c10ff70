"""A device that is not the CPU and that every machine has.

PyTorch knows a device ``lazy`` but has no kernels for it.  Inside ``other_device`` a tensor there wraps a tensor of the
CPU, which it computes with.  It meets tensors of the CPU as a tensor on a GPU does: an operation on both fails, unless
that of the CPU is an index, or a single number in an operation element by element.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from idiolect.core.trees import tree_leaves, tree_map

__all__ = ["OTHER", "brought_home", "other_device"]

OTHER = "lazy"
ATEN = torch.ops.aten
MOVES = (ATEN._to_copy.default, ATEN.copy_.default)
INDEXES = (ATEN.index.Tensor, ATEN.index_put.default, ATEN.index_put_.default)
TAKE_A_NUMBER = (*INDEXES, ATEN.fill_.Tensor, ATEN.masked_fill.Tensor, ATEN.masked_fill_.Tensor)


@contextmanager
def other_device() -> Iterator[None]:
    """Lets PyTorch compute on the device ``OTHER``."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # numbers of Python become a tensor of the CPU first
    try:
        with _OnBothDevices():
            yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


def brought_home(tree: Any) -> Any:
    """Returns a tree with the numbers of its tensors on the CPU."""
    return tree_map(_held, tree)


class Wrapped(Tensor):
    """A tensor on the other device.

    Attributes:
        held: its numbers.
    """

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Wrapped:
        form = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        made = Tensor._make_wrapper_subclass(cls, held.size(), device=torch.device(OTHER), **form)
        made.held = held
        return made

    def tolist(self) -> Any:  # PyTorch has none for wrapped tensors
        return self.held.tolist()

    def __repr__(self, **options: Any) -> str:
        return f"Wrapped({self.held})"

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(function, args, kwargs or {})


class _OnBothDevices(TorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(function, args, kwargs or {})


def _computed(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Computes one operation on what is held; the result is on the device that it has on a GPU."""
    given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    wrapped, asked = [x for x in given if isinstance(x, Wrapped)], kwargs.get("device")
    if asked is not None:
        there = asked.type == OTHER
    else:
        there = isinstance(args[0], Wrapped) if function is ATEN.copy_.default else bool(wrapped)
    if not there and not wrapped:
        return function(*args, **kwargs)
    _refuse_mixture(function, args, given)
    if there and torch.Tag.nondeterministic_seeded in function.tags:
        raise RuntimeError(f"{function} draws numbers on {OTHER}, which are others than those of the CPU")
    inner = tree_map(_held, kwargs)
    if asked is not None and there:
        inner["device"] = torch.device("cpu")
    found = function(*tree_map(_held, args), **inner)
    if not there:
        return found
    if torch.Tag.inplace_view in function.tags:
        args[0].data = Wrapped(found)  # takes over the new form
    known = {id(x.held): x for x in wrapped}

    def wrap(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return known[id(x)] if id(x) in known else Wrapped(x)

    return tree_map(wrap, found)


def _refuse_mixture(function: Any, args: Any, given: list[Tensor]) -> None:
    if function in MOVES:
        return
    if function in INDEXES and isinstance(args[0], Wrapped):
        given = [args[0], *args[2:3]]  # the tensor, and what is written there
    takes_a_number = torch.Tag.pointwise in function.tags or function in TAKE_A_NUMBER
    places = {x.device.type for x in given if x.device.type != "cpu" or x.ndim or not takes_a_number}
    if len(places) > 1:
        raise RuntimeError(f"{function}: tensors must be on one device, and these are on {sorted(places)}")


def _held(x: Any) -> Any:
    return x.held if isinstance(x, Wrapped) else x
