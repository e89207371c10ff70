"""The step of a stage on lanes of clients: its arguments, its graph, and the roles of what the graph takes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from idiolect.core import Context, Program, Stage, State, Tree
from idiolect.core.trees import flatten, tree_leaves, tree_map
from idiolect.engines.cohort.cuda.lane_memory import on_lanes
from idiolect.engines.cohort.cuda.stage_plan import StagePlan
from idiolect.engines.cohort.cuda.step_graph import Traced, trace
from idiolect.engines.cohort.traced_number import Unknown
from idiolect.engines.packing import BATCHED_LAYERS, Lift, advance
from idiolect.engines.workload import Workload

__all__ = ["Moment", "Role", "Step", "new_step", "step_at"]


class Moment(NamedTuple):
    """What changes from round to round and leaves the program as it is, as tensors."""

    round: Tensor
    learning_rate: Tensor
    lr_scale: Tensor


class Role(NamedTuple):
    """What an input of the graph is: ``client``, ``shared``, ``batch``, ``active`` or ``moment``; and its place."""

    kind: str
    place: int


class Step(NamedTuple):
    """Args:
    gives: form of the state.
    state: place of the first leaf of the state among those of (context, state).
    roles: of the inputs of the graph, in order.
    kinds: their shapes and types, as tensors without memory.
    reads_keys: whether it depends on the keys of examples.
    """

    gives: Hashable
    state: int
    traced: Traced
    roles: tuple[Role, ...]
    kinds: list[Tensor]
    reads_keys: bool


def new_step(
    program: Program, stage: Stage, context: Context, state: State, plan: StagePlan, work: Workload
) -> Step:
    """Traces one step of the lanes of a program."""
    arguments = _arguments(context, state, plan, work)
    traced = trace(step_at(program, stage, BATCHED_LAYERS.lift), arguments, state_at=1)
    roles, leaves = _roles(arguments), tree_leaves(arguments)
    keys = {id(batch.key) for batch in arguments[2]}
    return Step(
        gives=flatten(state)[1],
        state=len(tree_leaves(context)),
        traced=traced,
        roles=tuple(roles[i] for i in traced.used),
        kinds=[torch.empty_like(leaves[i], device="meta") for i in traced.used],
        reads_keys=any(id(leaves[i]) in keys for i in traced.used),
    )


def _arguments(context: Context, state: State, plan: StagePlan, work: Workload) -> tuple[Tree, ...]:
    """Tensors of the shapes that a step of one program takes, each an object of its own: a trace knows them by it.

    Draws are those of a step, which its batches share.
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
    batches = tuple(work.gather(*rows, draws) for _ in range(n_batches))
    active = number.new_zeros(n_lanes) > 0
    moment = Moment(*(number.clone() for _ in Moment._fields))
    return Context(server, private, facts, results, uploads), state, batches, active, moment


def _roles(arguments: tuple[Tree, ...]) -> list[Role]:
    """Of every leaf of the arguments; those of clients and shared ones are placed among (context, state)."""
    context, state, batches, _, moment = arguments
    kinds = [
        *["shared"] * len(tree_leaves(context.server)),
        *["client"] * len(tree_leaves(context[1:4])),
        *["shared"] * len(tree_leaves(context.uploads)),
        *["client"] * len(tree_leaves(state)),
    ]
    roles = [Role(kind, place) for place, kind in enumerate(kinds)]
    roles += [Role("batch", place) for place in range(len(tree_leaves(batches)))]
    return [*roles, Role("active", 0), *(Role("moment", place) for place in range(len(moment)))]


def step_at(program: Program, stage: Stage, lift: Lift) -> Callable[..., State]:
    """One step of all clients, at a moment given as tensors; ``active`` has no leaf where all of them are."""

    def step(context: Context, state: State, batches: Tree, active: Tree, moment: Moment) -> State:
        clock = program.clock._replace(round=Unknown(moment.round), learning_rate=moment.learning_rate)
        now = replace(program, clock=clock)
        one = advance(now, replace(stage, lr_scale=moment.lr_scale))
        return lift(one)(context, state, batches, *tree_leaves(active))

    return step
