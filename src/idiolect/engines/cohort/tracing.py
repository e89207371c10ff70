"""Tracing: functions of trees as graphs of tensor operations, recorded once and then run without Python or vmap.

All traces of the cohort engine are made by ``trace``: steps on a CPU, steps on lanes of a GPU, and hooks.  The round,
the learning rate and its scale are inputs of a graph, so that one trace serves every round.  Traces are cached under
fingerprints, which are equal only for values that compute the same.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from idiolect.core import Clock, Context, Program, Stage, State, Tree
from idiolect.core.trees import Form, flatten, tree_leaves, tree_map, unflatten
from idiolect.engines.client_packing import BATCHED_LAYERS, Lift, advance, hook_of

__all__ = [
    "ProgramKeys",
    "RoundInputs",
    "TracedGraph",
    "TracedHooks",
    "TracedNumber",
    "fingerprint",
    "graph_of",
    "stage_step",
    "trace",
    "traced_or_none",
]

Result = TypeVar("Result")
PLAIN = (type(None), bool, int, float, complex, str, bytes)


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


class TracedGraph(NamedTuple):
    """A function of trees as a graph of tensor operations.

    Args:
        graph: maps the leaves of the arguments to the leaves of the result.
        gives: the form of the result.
    """

    graph: fx.GraphModule
    gives: Form


def trace(program: Program, function: Callable[..., Tree], leaves: list[Tensor], takes: Form) -> TracedGraph:
    """Traces ``function(program, *trees)``, where the last tree is the ``RoundInputs``.

    The function gets the program at a round and a learning rate that stand for the inputs.

    Args:
        leaves, takes: as in ``graph_of``.
    """

    def at_any_round(*trees: Any) -> Tree:
        inputs: RoundInputs = trees[-1]
        number: Any = TracedNumber(inputs.round)  # the clock is typed for Python's numbers
        rate: Any = TracedNumber(inputs.learning_rate)
        clock = program.clock._replace(round=number, learning_rate=rate)
        return function(replace(program, clock=clock), *trees)

    return graph_of(at_any_round, leaves, takes)


def graph_of(function: Callable[..., Tree], leaves: list[Tensor], takes: Form) -> TracedGraph:
    """Traces ``function`` as it is; operations whose result nobody reads stay in the graph.

    Args:
        leaves: the leaves of the arguments, for their shapes and strides.  A trace tells its inputs apart by identity,
            so that two leaves must not be one object.  Tensors that the function makes go to the device of the first.
        takes: the form of the tuple of arguments.
    """
    gives: Form = None

    def on_leaves(*flat: Tensor) -> list[Tensor]:
        nonlocal gives
        found, gives = flatten(function(*unflatten(flat, takes)))
        return found

    with torch.device(leaves[0].device):
        graph = make_fx(on_leaves, tracing_mode="fake", _allow_non_fake_inputs=True)(*leaves)
    return TracedGraph(graph, gives)


def traced_or_none(
    make: Callable[[], Result], on_error: Callable[[Exception], None] = lambda error: None
) -> Result | None:
    """Returns what ``make`` traces, or None where it fails and the caller runs the function untraced.

    A mistake in the function itself comes up again when it runs untraced, so that the error may be dropped here.

    Args:
        on_error: is given the error, and may raise it.
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
        scale: Any = inputs.lr_scale  # the stage is typed for a Python number
        one = advance(program, replace(stage, lr_scale=scale))
        new: State = lift(one)(context, state, batches, *tree_leaves(active))
        return new

    return step


class TracedNumber:
    """A number of the clock while a function is traced: arithmetic with it is recorded.

    Its value cannot be read, because a trace that depends on the value would hold for one round only.

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


class _KnownHook(NamedTuple):
    """The form of the arguments that a hook was traced for, and its trace; None where it cannot be traced."""

    takes: Form
    trace: TracedGraph | None


@dataclass
class TracedHooks:
    """The hooks of a run (``begin``, ``upload``, ``finish``, ...) on all clients, traced once and then run as graphs.

    Under ``vmap`` such a hook costs milliseconds of Python in every round, for a handful of small operations.  A hook
    that cannot be traced, for example because it decides by the round what to compute, runs under ``vmap``.

    Args:
        keys: of the run's programs; traces are kept by them and by the shapes that a hook computes on.
    """

    keys: ProgramKeys
    _known: dict[Hashable, _KnownHook] = field(default_factory=dict)

    def call(self, program: Program, name: str, stage: Stage | None, context: Context, *trees: Tree) -> Any:
        """Returns what the hook ``name`` gives for all clients; ``stage`` is None where a hook belongs to none."""
        inputs = RoundInputs.of(program.clock, 1.0, context.facts.samples.dtype)
        flat, takes = flatten((context, *trees, inputs))
        part = stage and (
            stage.start,
            stage.measure,
            stage.objective is None,
            stage.trainable,
            stage.optimiser,
        )
        kinds = tuple((leaf.shape, leaf.stride(), leaf.dtype) for leaf in flat)
        key = (name, self.keys(program), fingerprint(part), stage and stage.owner, kinds)
        known = self._known.get(key)
        if known is None or known.takes != takes:
            known = self._known[key] = _KnownHook(takes, _trace_hook(program, name, stage, flat, takes))
        if known.trace is None:
            return BATCHED_LAYERS.call(program, name, stage, context, *trees)
        with torch.no_grad():
            return unflatten(known.trace.graph(*flat), known.trace.gives)


def _trace_hook(
    program: Program, name: str, stage: Stage | None, flat: list[Tensor], takes: Form
) -> TracedGraph | None:
    def hook(program: Program, *trees: Tree) -> Any:
        *given, _ = trees  # no hook reads the scale of a stage's learning rate here
        return BATCHED_LAYERS.lift(hook_of(program, name, stage))(*given)

    found = traced_or_none(lambda: trace(program, hook, [torch.empty_like(leaf) for leaf in flat], takes))
    if found is not None:
        found.graph.graph.eliminate_dead_code()
        found.graph.recompile()
    return found


class _ByIdentity:
    """A key that equals only itself; it holds the object, so that no other object gets its identity."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def fingerprint(value: Any, above: tuple[int, ...] = ()) -> Hashable:
    """Returns the key of ``value``: by content for plain values, containers, functions and modules, else by identity.

    Functions are equal when their code is the same object and what they close over is equal, so that a method that is
    read twice, or a stage that is planned anew in every round, is recognised.  Of a module's parameters and buffers
    only shapes count, since steps are given their values from outside.

    >>> def scaled(by):
    ...     return lambda x: by * x
    >>> fingerprint(scaled(2.0)) == fingerprint(scaled(2.0)), fingerprint(scaled(2.0)) == fingerprint(scaled(3.0))
    (True, False)
    """
    if isinstance(value, PLAIN):
        return type(value), value
    if id(value) in above:
        return "above", above.index(id(value))
    inside = (*above, id(value))

    def each(items: Any) -> tuple[Hashable, ...]:
        return tuple(fingerprint(item, inside) for item in items)

    if isinstance(value, Mapping):
        return type(value), each(value.keys()), each(value.values())
    if isinstance(value, tuple | list | set | frozenset):
        return type(value), each(value)
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return value.__code__, each(cells), each(value.__defaults__ or ()), each([value.__kwdefaults__])
    if isinstance(value, MethodType):
        return each([value.__self__, value.__func__])
    if isinstance(value, partial):
        return each([value.func, value.args, value.keywords])
    if isinstance(value, Tensor) or not hasattr(value, "__dict__") or isinstance(value, type):
        return _ByIdentity(value)
    own = dict(vars(value))
    if isinstance(value, nn.Module):
        own |= {name: _shapes(own[name]) for name in ("_parameters", "_buffers")}
    return type(value), each([own])


def _shapes(tensors: Mapping[str, Tensor | None]) -> dict[str, Any]:
    return {name: None if t is None else (tuple(t.shape), str(t.dtype)) for name, t in tensors.items()}


class ProgramKeys:
    """Makes keys of programs that leave out the round and the learning rate; the fingerprint is computed once a run."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Program, Hashable]] = {}

    def __call__(self, program: Program) -> Hashable:
        known = self._known.get(id(program.task))
        if known is None or known[0].method is not program.method or known[0].scene != program.scene:
            content = (program.method.parts, program.task, program.scene, program.differentiate)
            known = self._known[id(program.task)] = (program, fingerprint(content))
        return known[1], program.clock._replace(round=0, learning_rate=0.0)
