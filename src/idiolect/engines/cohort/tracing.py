"""Traces: functions of trees as graphs of tensor operations, recorded once and then run without Python or vmap.

All traces of the cohort engine are made by ``trace``: steps on a CPU, steps on lanes of a GPU, and hooks.  The round,
the learning rate and its scale are inputs of a graph, so that one trace serves every round.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from idiolect.core import Clock, Context, Program, Stage, State, Tree
from idiolect.core.trees import Form, flatten, tree_leaves, tree_map, unflatten
from idiolect.engines.packing import Lift, advance

__all__ = ["RoundInputs", "Trace", "TracedNumber", "graph_of", "stage_step", "trace", "traced_or_none"]

Result = TypeVar("Result")


class RoundInputs(NamedTuple):
    """The numbers that change from round to round, as tensors that a trace takes."""

    round: Tensor
    learning_rate: Tensor
    lr_scale: Tensor

    @classmethod
    def of(cls, clock: Clock, lr_scale: float, dtype: torch.dtype) -> RoundInputs:
        """Returns the numbers in the run's precision; numbers may stay on the host whatever the device."""
        numbers = (clock.round, clock.learning_rate, lr_scale)
        return cls(*(torch.tensor(number, dtype=dtype) for number in numbers))


class Trace(NamedTuple):
    """Args:
    graph: from the leaves of the arguments to the leaves of the result.
    gives: form of the result.
    """

    graph: fx.GraphModule
    gives: Form


def trace(program: Program, function: Callable[..., Tree], leaves: list[Tensor], takes: Form) -> Trace:
    """Traces ``function(program, *trees)``, where the last tree is the ``RoundInputs``.

    The function gets the program at a round and a learning rate that stand for the inputs.

    Args:
        leaves, takes: as of ``graph_of``.
    """

    def at_any_round(*trees: Any) -> Tree:
        inputs: RoundInputs = trees[-1]
        number: Any = TracedNumber(inputs.round)  # where the clock has numbers of Python
        rate: Any = TracedNumber(inputs.learning_rate)
        clock = program.clock._replace(round=number, learning_rate=rate)
        return function(replace(program, clock=clock), *trees)

    return graph_of(at_any_round, leaves, takes)


def graph_of(function: Callable[..., Tree], leaves: list[Tensor], takes: Form) -> Trace:
    """Traces ``function`` as it is; operations whose result nobody reads stay in the graph.

    Args:
        leaves: of the arguments, for their shapes and strides.  A trace tells its inputs apart by identity, so that two
            leaves must not be one object.  Tensors that the function makes go to the device of the first.
        takes: form of the tuple of arguments.
    """
    gives: Form = None

    def on_leaves(*flat: Tensor) -> list[Tensor]:
        nonlocal gives
        found, gives = flatten(function(*unflatten(flat, takes)))
        return found

    with torch.device(leaves[0].device):
        graph = make_fx(on_leaves, tracing_mode="fake", _allow_non_fake_inputs=True)(*leaves)
    return Trace(graph, gives)


def traced_or_none(
    make: Callable[[], Result], on_error: Callable[[Exception], None] = lambda error: None
) -> Result | None:
    """Returns what ``make`` traces, or None where it fails and the caller runs the function untraced.

    A mistake in the function itself comes up again when it runs untraced, so that the error may be dropped here.

    Args:
        on_error: hears the error, and may raise it.
    """
    try:
        return make()
    except Exception as error:
        on_error(error)
        return None


def stage_step(stage: Stage, lift: Lift) -> Callable[..., State]:
    """Returns one step of all clients of a stage as a function for ``trace``.

    It takes (program, context, state, batches, active, inputs); ``active`` has no leaf where all clients are active.
    """

    def step(
        program: Program, context: Context, state: State, batches: Tree, active: Tree, inputs: RoundInputs
    ) -> State:
        scale: Any = inputs.lr_scale  # where a stage has a number of Python
        one = advance(program, replace(stage, lr_scale=scale))
        new: State = lift(one)(context, state, batches, *tree_leaves(active))
        return new

    return step


class TracedNumber:
    """A number of the clock while a function is traced: arithmetic with it is recorded.

    It refuses to be looked at, because a trace that depends on its value would hold for one round only.

    Args:
        tensor: the input of the trace that stands for the number.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*tree_map(_plain, args), **tree_map(_plain, kwargs or {}))

    def __repr__(self) -> str:
        raise TypeError("a number that changes from round to round has no text while a function is traced")

    def __bool__(self) -> bool:
        raise TypeError(
            "a number that changes from round to round decides nothing while a function is traced"
        )

    __hash__ = None  # type: ignore[assignment]  # as Python itself does for a class that cannot be hashed
    __str__ = __repr__
    __int__ = __float__ = __index__ = __bool__


def _plain(value: Any) -> Any:
    return value._tensor if isinstance(value, TracedNumber) else value


def _operator(name: str) -> Callable[..., Any]:
    compute = getattr(operator, name)

    def apply(self: TracedNumber, *other: Any) -> Any:
        found = compute(self._tensor, *map(_plain, other))
        return found if any(isinstance(each, Tensor) for each in other) else TracedNumber(found)

    return apply


def _reflected(name: str) -> Callable[..., Any]:
    compute = getattr(operator, name)
    return lambda self, other: TracedNumber(compute(other, self._tensor))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(TracedNumber, f"__{_name}__", _operator(_name))
    setattr(TracedNumber, f"__r{_name}__", _reflected(_name))
for _name in ("neg", "abs", "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(TracedNumber, f"__{_name}__", _operator(_name))
