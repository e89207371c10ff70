"""The server's own stages after a merge: on public inputs, or on the parameters alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from idiolect.core import (
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
)
from idiolect.core.trees import tree_map
from idiolect.engines.group import run_stages
from idiolect.engines.packing import SINGLE
from idiolect.engines.workload import Workload
from idiolect.federation import plan_batches

__all__ = ["serve", "serve_on"]


def serve(program: Program, work: Workload, server: ServerState, messages: Messages) -> ServerState:
    """The server's state after its stages; rates are absolute, whatever the clients' schedule."""

    def feed(stage: Stage) -> Iterator[tuple[tuple[Batch, ...], None]]:
        for batch in _batches(program, work, stage):
            yield (batch,), None

    return serve_on(program, server, messages, feed, work.like)


def serve_on(program: Program, server: ServerState, messages: Messages, feed, one: Tensor) -> ServerState:  # type: ignore[no-untyped-def]
    """``serve`` on any batches; ``one`` has the run's precision and device."""
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
    return {**server, "params": model.params, "buffers": model.buffers}


def _uploads(program: Program, server: ServerState, messages: Messages) -> dict[str, Slot]:
    """Single uploads, for the parts that declare that they look at them: their own, or the server update's."""
    found = {}
    update = next((p.name for p in program.method.parts if "server update" in p.roles), "")
    for part in program.method.parts:
        if part.individual:
            params, weights = messages[part.name if part.upload else update]
            own = tree_map(lambda leaf: leaf.expand(len(weights), *leaf.shape), server["buffers"])  # noqa: B023
            sent = messages["buffers"][0] if "buffers" in messages else {}
            found[part.name] = {"params": params, "buffers": {**own, **sent}}
    return found


def _batches(program: Program, work: Workload, stage: Stage) -> Iterator[Batch]:
    steps = stage.steps or 0
    size = program.scene.batch_size
    if stage.split == "none":
        row = np.zeros(1, np.int64)
        nothing = work.batch(row, row.astype(bool), row, {})
        yield from (nothing._replace(x=torch.zeros_like(nothing.x)) for _ in range(steps))
        return
    position = ("server", program.clock.round)
    plan = plan_batches(
        work.federation.public, steps, size, seed=work.seed, position=position, drop_single=work.drop_single
    )
    for index, mask, key in zip(*plan, strict=True):
        yield work.batch(index[mask], mask[mask], key[mask], {})
