"""The traced step of a stage on lanes of clients: its graph, which updates the state in place, and its inputs.

The graph reads only what the step depends on.  Numbers that Python holds (weights of terms, temperatures, rates) become
inputs, so that steps which differ in nothing else share one compiled graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from idiolect.core import Batch, Context, Program, Stage, State
from idiolect.core.trees import Form, flatten, tree_leaves, tree_map
from idiolect.engines.client_packing import BATCHED_LAYERS
from idiolect.engines.cohort.cuda.lane_assignment import on_lanes
from idiolect.engines.cohort.cuda.lane_batch_plans import StagePlan
from idiolect.engines.cohort.tracing import RoundInputs, stage_step, trace
from idiolect.engines.device_data import Workload

__all__ = ["InputRole", "StepGraph", "TracedStep", "step_graph", "trace_step_on_lanes"]

aten = torch.ops.aten
ARITHMETIC = {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor}


class InputRole(NamedTuple):
    """What an input of the graph is: ``client``, ``shared``, ``batch``, ``active`` or ``round``; and its place."""

    kind: str
    place: int


class StepGraph(NamedTuple):
    """The graph of a step that updates the state in place.

    Args:
        module: takes the used inputs, then the constants; writes the new state over the state's leaves among them.
        used: which leaves of the arguments it reads, in order.
        changed: which of its inputs it changes; all of them are leaves of the state.
        constants: tensors that the step closes over, and its lifted numbers.
        text: the same for two graphs that compute the same.
    """

    module: fx.GraphModule
    used: tuple[int, ...]
    changed: tuple[int, ...]
    constants: tuple[Tensor, ...]
    text: str


class TracedStep(NamedTuple):
    """A traced step of a stage on lanes, and what its inputs are.

    Args:
        gives: the form of the state.
        state: the place of the first leaf of the state among those of (context, state).
        roles: the roles of the inputs of the graph, in order.
        kinds: the shapes and types of the inputs, as tensors without memory.
        reads_keys: whether the step depends on the keys of examples.
    """

    gives: Form
    state: int
    graph: StepGraph
    roles: tuple[InputRole, ...]
    kinds: list[Tensor]
    reads_keys: bool


class _Arguments(NamedTuple):
    """The arguments of a step on lanes."""

    context: Context
    state: State
    batches: tuple[Batch, ...]
    active: Tensor
    inputs: RoundInputs


def trace_step_on_lanes(
    program: Program, stage: Stage, context: Context, state: State, plan: StagePlan, work: Workload
) -> TracedStep:
    """Traces one step of the lanes of a lane group."""
    arguments = _arguments(context, state, plan, work)
    leaves, takes = flatten(tuple(arguments))
    module, _ = trace(program, stage_step(stage, BATCHED_LAYERS.lift), leaves, takes)
    graph = step_graph(module, leaves, len(tree_leaves(arguments.context)))
    roles = _roles(arguments)
    keys = {id(batch.key) for batch in arguments.batches}
    return TracedStep(
        gives=flatten(state)[1],
        state=len(tree_leaves(context)),
        graph=graph,
        roles=tuple(roles[i] for i in graph.used),
        kinds=[torch.empty_like(leaves[i], device="meta") for i in graph.used],
        reads_keys=any(id(leaves[i]) in keys for i in graph.used),
    )


def _arguments(context: Context, state: State, plan: StagePlan, work: Workload) -> _Arguments:
    """Returns tensors of the shapes that a step takes, each an object of its own: a trace tells them apart by it.

    Draws alone are shared, by the batches of a step.
    """
    number = context.facts.samples.new_zeros(())
    n_batches, n_lanes, n_rows = plan.shape
    server, uploads = tree_map(torch.empty_like, (context.server, context.uploads))
    private, facts, results, state = tree_map(
        lambda leaf: on_lanes(leaf.new_empty(n_lanes, leaf[0].numel()), leaf.shape[1:]),
        (*context[1:4], state),
    )
    rows = torch.zeros(3, n_lanes, n_rows, dtype=torch.int64, device=number.device)
    draws = {part: numbers.new_zeros(numbers.shape[1:]) for part, numbers in plan.draws.items()}
    batches = tuple(work.gather(rows[0], rows[1], rows[2], draws) for _ in range(n_batches))
    active = number.new_zeros(n_lanes) > 0
    inputs = RoundInputs(*(number.clone() for _ in RoundInputs._fields))
    return _Arguments(Context(server, private, facts, results, uploads), state, batches, active, inputs)


def _roles(arguments: _Arguments) -> list[InputRole]:
    """Returns the role of every leaf of the arguments; the place of clients' and shared ones is in (context, state)."""
    context = arguments.context
    kinds = [
        *["shared"] * len(tree_leaves(context.server)),
        *["client"] * len(tree_leaves(context[1:4])),
        *["shared"] * len(tree_leaves(context.uploads)),
        *["client"] * len(tree_leaves(arguments.state)),
    ]
    roles = [InputRole(kind, place) for place, kind in enumerate(kinds)]
    roles += [InputRole("batch", place) for place in range(len(tree_leaves(arguments.batches)))]
    return [
        *roles,
        InputRole("active", 0),
        *(InputRole("round", place) for place in range(len(arguments.inputs))),
    ]


def step_graph(module: fx.GraphModule, leaves: list[Tensor], first: int) -> StepGraph:
    """Rewrites the graph of ``new_state = step(*arguments)`` so that it updates the state in place.

    Args:
        leaves: of the arguments.
        first: place of the first leaf of the state among them.
    """
    changed = _write_back(module.graph, first)
    module.graph.eliminate_dead_code()
    used = _drop_unused(module.graph)
    changed = tuple(used.index(i) for i in changed)
    constants = [*_lift_tensors(module), *_lift_numbers(module.graph, leaves[0].device)]
    _let_views_copy(module.graph)
    module.graph.lint()
    module.recompile()
    kinds = [(tuple(t.shape), t.dtype, t.stride()) for t in (*(leaves[i] for i in used), *constants)]
    return StepGraph(module, used, changed, tuple(constants), f"{module.code}\n{kinds}")


def _write_back(graph: fx.Graph, first: int) -> tuple[int, ...]:
    """Copies the new state over the old, except leaves that the step returns as they were; returns the changed."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    output = next(iter(reversed(graph.nodes)))
    new: Any = output.args[0]
    changed = tuple(first + i for i, node in enumerate(new) if node is not inputs[first + i])
    with graph.inserting_before(output):
        for i in changed:
            graph.call_function(aten.copy_.default, (inputs[i], new[i - first]))
    output.args = ((),)
    return changed


def _drop_unused(graph: fx.Graph) -> tuple[int, ...]:
    """Removes inputs that nothing reads; the rest are named by their order, on which alone the text then depends."""
    used: list[int] = []
    for i, node in enumerate([n for n in graph.nodes if n.op == "placeholder"]):
        if node.users:
            node.target = f"input_{len(used)}"
            node.name = node.target
            used.append(i)
        else:
            graph.erase_node(node)
    return tuple(used)


def _let_views_copy(graph: fx.Graph) -> None:
    """Makes views into reshapes, which copy where a compiler lays memory out in another way than the trace did."""
    for node in graph.nodes:
        if node.target is aten.view.default:
            node.target = aten.reshape.default


def _lift_tensors(module: fx.GraphModule) -> list[Tensor]:
    """Makes tensors that the step closes over into inputs, and returns them."""
    found = [node for node in module.graph.nodes if node.op == "get_attr"]
    for node in found:
        node.replace_all_uses_with(_new_input(module.graph, node.name))
        module.graph.erase_node(node)
    return [getattr(module, str(node.target)) for node in found]


def _lift_numbers(graph: fx.Graph, device: torch.device) -> list[Tensor]:
    """Makes factors and summands that Python holds into inputs of no dimension, and returns them."""
    lifted: list[Tensor] = []
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in ARITHMETIC:
            continue
        like = node.meta["val"].dtype
        dtype = like if like in (torch.float32, torch.float64) else torch.float32
        for place, argument in enumerate(node.args):
            if isinstance(argument, float):
                lifted.append(torch.tensor(argument, dtype=dtype, device=device))
                node.update_arg(place, _new_input(graph, f"number_{len(lifted)}"))
    return lifted


def _new_input(graph: fx.Graph, name: str) -> fx.Node:
    last = [node for node in graph.nodes if node.op == "placeholder"][-1]
    with graph.inserting_after(last):
        return graph.placeholder(name)
