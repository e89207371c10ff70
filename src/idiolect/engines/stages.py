"""Drives the stages of a method: a round and the later phases for a group of clients, and the server's own stages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Context,
    Facts,
    Messages,
    Model,
    PrivateState,
    Program,
    Result,
    ServerState,
    Slot,
    Stage,
    Tree,
)
from idiolect.core.context import with_download, without_download
from idiolect.core.trees import Rows, tree_map
from idiolect.engines.client_packing import SINGLE, Feed, Packing
from idiolect.engines.contract import Outcome, StagesDone, nobody
from idiolect.engines.device_data import Workload
from idiolect.engines.evaluation import evaluate_context, group_context
from idiolect.federation import plan_batches

__all__ = ["round_of_group", "run_round", "run_settling", "serve", "serve_on", "settle_group"]

Planned: TypeAlias = Callable[[Stage], Slot]


def nothing_planned(stage: Stage) -> Slot:
    """The learning rate is the same in all steps of a stage, so that their number is not asked for."""
    return {}


def run_stages(
    program: Program,
    packing: Packing,
    stages: tuple[Stage, ...],
    context: Context,
    feed: Callable[[Stage], Any],
    previous: Result | None = None,
    planned: Planned = nothing_planned,
    progress: Callable[[], None] = lambda: None,
) -> tuple[Context, Result | None]:
    """Runs stages one after the other and adds their results to the context.

    Args:
        feed: returns the batches of a stage in the form that the packing folds over.
        previous: the result that the first stage starts from, unless it has a start of its own.
        planned: returns how many steps each client makes in a stage, if its learning rate depends on it.
        progress: is called after each stage.
    """
    for stage in stages:
        before = [previous] if previous is not None and stage.start is None else []
        state = packing.call(program, "begin", stage, context, *before)._replace(planned=planned(stage))
        state = packing.fold(program, stage, context, state, feed(stage))
        previous = program.end(state)  # it works element by element, on stacked clients too
        context = context._replace(results={**context.results, stage.name: previous})
        progress()
    return context, previous


def run_round(
    program: Program,
    packing: Packing,
    context: Context,
    feed: Callable[[Stage], Any],
    planned: Planned = nothing_planned,
) -> tuple[Context, Messages]:
    """Runs the stages before and after the upload; returns the context with new private state, and the messages.

    The context still has the client's own download, which the client does not keep.
    """
    plan = program.method.plan(program.scene, program.clock)
    context, last = run_stages(program, packing, plan.before, context, feed, planned=planned)
    trained = [context.results[stage.name] for stage in plan.before if stage.measure is None]
    context = context._replace(results={**context.results, UPLOAD: trained[-1]})
    messages = packing.call(program, "upload", None, context)
    context, _ = run_stages(program, packing, plan.after, context, feed, last, planned)
    kept: PrivateState = packing.call(program, "finish", None, context)
    return context._replace(private=with_download(kept, context.private.get("download", {}))), messages


def run_settling(
    program: Program,
    packing: Packing,
    phase: str,
    context: Context,
    feed: Callable[[Stage], Any],
    planned: Planned = nothing_planned,
    progress: Callable[[], None] = lambda: None,
) -> PrivateState:
    """Runs the stages of the phase ``merged`` or ``end``; returns the private state after them."""
    plan = program.method.plan(program.scene, program.clock)
    stages = plan.merged if phase == "merged" else plan.end
    context, _ = run_stages(program, packing, stages, context, feed, planned=planned, progress=progress)
    hook = "score" if phase == "merged" else "personalise"
    private: PrivateState = packing.call(program, hook, None, context)
    return private


def round_of_group(
    program: Program,
    work: Workload,
    packing: Packing,
    server: ServerState,
    privates: Mapping[int, Tree],
    observe: bool,
    keep: Callable[[Context], None] | None = None,
) -> Sequence[Outcome]:
    """Runs one round of the clients in ``privates``: a single client or a cohort, as the packing says.

    Args:
        keep: is given the packed context after the round, with the results of all stages.
    """
    program = replace(program, differentiate=packing.differentiate)
    clients, work = list(privates), work.at(program.clock.round)
    context = group_context(work, packing, server, privates)
    before = evaluate_context(program, work, packing, context, clients, "test") if observe else None
    feed, planned = _feed(work, packing, program, clients), _planned(work, packing, program, clients)
    context, messages = run_round(program, packing, context, feed, planned)
    if keep is not None:
        keep(context)
    after = evaluate_context(program, work, packing, context, clients, "test") if observe else None
    chooses = observe and _newcomers_choose(program, work, clients)
    valid = evaluate_context(program, work, packing, context, clients, "valid") if chooses else None
    rows = packing.unpack(
        (without_download(context.private), messages, context.results[UPLOAD].loss), len(clients)
    )
    if isinstance(rows, Rows) and not observe:
        private, sent, loss = rows.stacked
        return Rows(Outcome(private, sent, loss, {}, {}), len(clients))
    return [
        Outcome(
            private,
            sent,
            loss,
            before=before[i] if before else {},
            after=after[i] if after else {},
            after_valid=valid[i] if valid else {},
        )
        for i, (private, sent, loss) in enumerate(rows)
    ]


def _newcomers_choose(program: Program, work: Workload, clients: list[int]) -> bool:
    """Whether these clients have just joined and can choose a predictor on validation data."""
    return (
        program.clock.newcomer
        and bool(program.method.choices)
        and all(len(work.federation.clients[c].valid) for c in clients)
    )


def settle_group(
    program: Program,
    work: Workload,
    packing: Packing,
    phase: str,
    server: ServerState,
    privates: Mapping[int, Tree],
    progress: StagesDone = nobody,
) -> Sequence[Tree]:
    """Returns the private state of the clients after the phase ``merged`` or ``end``."""
    program = replace(program, differentiate=packing.differentiate)
    clients, work = list(privates), work.at(program.clock.round)
    context = group_context(work, packing, server, privates)
    feed = _feed(work, packing, program, clients)
    planned = _planned(work, packing, program, clients)
    settled = run_settling(program, packing, phase, context, feed, planned, lambda: progress(len(clients)))
    return packing.unpack(settled, len(clients))


def _feed(work: Workload, packing: Packing, program: Program, clients: list[int]) -> Callable[[Stage], Any]:
    return lambda stage: packing.feed(work, program, stage, clients)


def _planned(work: Workload, packing: Packing, program: Program, clients: list[int]) -> Planned:
    """Returns the number of steps of each client in a stage as a slot for its state, if there is a schedule."""
    if not program.scene.has_local_schedule:
        return nothing_planned

    def planned(stage: Stage) -> Slot:
        if stage.measure is not None:
            return {}
        counts = [work.steps(program, stage, client) for client in clients]
        slots: Slot = packing.pack([{"steps": work.like.new_tensor(max(count, 1))} for count in counts])
        return slots

    return planned


def serve(program: Program, work: Workload, server: ServerState, messages: Messages) -> ServerState:
    """Runs the server's own stages after a merge, on public inputs or on the parameters alone.

    Their learning rates are absolute, whatever the clients' schedule.
    """

    def feed(stage: Stage) -> Feed:
        for batch in _server_batches(program, work, stage):
            yield (batch,), None

    return serve_on(program, server, messages, feed, work.like)


def serve_on(
    program: Program, server: ServerState, messages: Messages, feed: Callable[[Stage], Feed], one: Tensor
) -> ServerState:
    """Runs the server's own stages on the batches of ``feed``.

    Args:
        one: the number 1 in the run's precision, on its device.
    """
    program = replace(
        program, differentiate=SINGLE.differentiate, clock=program.clock._replace(learning_rate=1.0)
    )
    facts = Facts(one.new_zeros(program.task.structure.n_classes), one, one)
    private: PrivateState = {"buffers": {}, "slots": {}}
    context = Context(server, private, facts, {}, _uploads(program, server, messages))
    merged = Result({"model": server["params"]}, {"model": server["buffers"]}, {}, one, one, {})
    plan = program.method.plan(program.scene, program.clock)
    context, last = run_stages(program, SINGLE, plan.server, context, feed, merged)
    assert last is not None
    model = program.serve(context, Model(server["params"], server["buffers"]))
    return {"params": model.params, "buffers": model.buffers, "slots": program.serve_slots(context)}


def _uploads(program: Program, server: ServerState, messages: Messages) -> dict[str, Slot]:
    """Returns what each client uploaded for the server update, for the parts that look at single uploads."""
    found: dict[str, Slot] = {}
    update = next((p.name for p in program.method.parts if "server update" in p.roles), "")
    for part in program.method.parts:
        if part.individual:
            params, weights = messages[update]
            own = tree_map(lambda leaf: leaf.expand(len(weights), *leaf.shape), server["buffers"])  # noqa: B023
            sent = messages["buffers"][0] if "buffers" in messages else {}
            found[part.name] = {"params": params, "buffers": {**own, **sent}}
    return found


def _server_batches(program: Program, work: Workload, stage: Stage) -> Iterator[Batch]:
    """Yields the batches of a server's stage; a stage without data gets an empty batch for each step."""
    steps = stage.steps or 0
    size = program.scene.batch_size
    position = ("server", program.clock.round)
    draws = work.draws(program, stage, steps, *position)
    if stage.split == "none":
        x, y = (pool.new_zeros(1, *pool.shape[1:]) for pool in (work.x, work.y))  # there may be no row at all
        key = torch.zeros(1, dtype=torch.int64, device=work.device)
        for t in range(steps):
            drawn = {part: torch.from_numpy(d[t]).to(work.like) for part, d in draws.items()}
            yield Batch(x, y, work.like.new_zeros(1), key, drawn)
        return
    plan = plan_batches(
        work.federation.public, steps, size, seed=work.seed, position=position, drop_single=work.drop_single
    )
    for t, (index, mask, key) in enumerate(zip(*plan, strict=True)):
        yield work.batch(index[mask], mask[mask], key[mask], {part: d[t] for part, d in draws.items()})
