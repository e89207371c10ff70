"""What any engine does with a group of clients: drive the stages of a round, or of a later phase."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from idiolect.core import UPLOAD, Context, Messages, PrivateState, Program, Result, ServerState, Stage
from idiolect.core.trees import Rows
from idiolect.engines.evaluation import Logits, evaluate_context, group_context
from idiolect.engines.packing import Packing
from idiolect.engines.workload import Workload

__all__ = ["Outcome", "round_of_group", "run_round", "run_settling", "settle_group"]


class Outcome(NamedTuple):
    """One client's round."""

    private: PrivateState
    messages: Messages
    loss: Tensor
    before: Logits  # of the test split, before and after local training; empty unless observed
    after: Logits
    after_valid: Logits = {}  # of the validation split, where something is chosen for a newcomer


def run_stages(
    program: Program,
    packing: Packing,
    stages: tuple[Stage, ...],
    context: Context,
    feed: Callable[[Stage], Any],
    previous: Result | None = None,
) -> tuple[Context, Result | None]:
    """Runs ``stages`` one after the other and adds their results to the context."""
    for stage in stages:
        before = [previous] if previous is not None and stage.start is None else []
        state = packing.call(program, "begin", stage, context, *before)
        state = packing.fold(program, stage, context, state, feed(stage))
        previous = program.end(state)  # of every client at once: it works element by element
        context = context._replace(results={**context.results, stage.name: previous})
    return context, previous


def run_round(
    program: Program, packing: Packing, context: Context, feed: Callable[[Stage], Any]
) -> tuple[Context, Messages]:
    """The stages around the upload mark, then what stays and what is sent."""
    plan = program.method.plan(program.scene, program.clock)
    context, last = run_stages(program, packing, plan.before, context, feed)
    trained = [context.results[stage.name] for stage in plan.before if stage.measure is None]
    context = context._replace(results={**context.results, UPLOAD: trained[-1]})
    messages = packing.call(program, "upload", None, context)
    context, _ = run_stages(program, packing, plan.after, context, feed, last)
    return context._replace(private=packing.call(program, "finish", None, context)), messages


def run_settling(
    program: Program,
    packing: Packing,
    phase: str,
    context: Context,
    feed: Callable[[Stage], Any],
) -> PrivateState:
    """The stages of the phase ``merged`` or ``end``, then the private state they lead to."""
    plan = program.method.plan(program.scene, program.clock)
    stages = plan.merged if phase == "merged" else plan.end
    context, _ = run_stages(program, packing, stages, context, feed)
    hook = "score" if phase == "merged" else "personalise"
    private: PrivateState = packing.call(program, hook, None, context)
    return private


def round_of_group(
    program: Program,
    work: Workload,
    packing: Packing,
    server: ServerState,
    privates: Mapping[int, PrivateState],
    observe: bool,
) -> Sequence[Outcome]:
    """One round of the clients in ``privates``; the caller hands a single one, or a cohort, as the packing says."""
    program = replace(program, differentiate=packing.differentiate)
    clients = list(privates)
    context = group_context(work, packing, server, privates)
    before = evaluate_context(program, work, packing, context, clients, "test") if observe else None
    feed = _feed(work, packing, program, clients)
    context, messages = run_round(program, packing, context, feed)
    after = evaluate_context(program, work, packing, context, clients, "test") if observe else None
    chooses = observe and program.clock.newcomer and program.method.choices
    chooses = chooses and all(len(work.federation.clients[c].valid) for c in clients)
    valid = evaluate_context(program, work, packing, context, clients, "valid") if chooses else None
    rows = packing.unpack((context.private, messages, context.results[UPLOAD].loss), len(clients))
    if isinstance(rows, Rows) and not observe:
        return Rows(Outcome(*rows.stacked, {}, {}), len(clients))
    return [
        Outcome(*row, *(found[i] if found else {} for found in (before, after, valid)))
        for i, row in enumerate(rows)
    ]


def settle_group(
    program: Program,
    work: Workload,
    packing: Packing,
    phase: str,
    server: ServerState,
    privates: Mapping[int, PrivateState],
) -> Sequence[PrivateState]:
    """New private state after the phase ``merged`` or ``end``."""
    program = replace(program, differentiate=packing.differentiate)
    clients = list(privates)
    context = group_context(work, packing, server, privates)
    feed = _feed(work, packing, program, clients)
    return packing.unpack(run_settling(program, packing, phase, context, feed), len(clients))


def _feed(work: Workload, packing: Packing, program: Program, clients: list[int]) -> Callable[[Stage], Any]:
    return lambda stage: packing.feed(work, program, stage, clients)
