"""What any engine does with a group of clients: drive stages, finish, evaluate."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from idiolect.core import UPLOAD, Batch, Context, Model, Plan, Program, Result, Stage, State, Tree
from idiolect.core.measures import recalibration
from idiolect.engines.packing import SINGLE, Packing
from idiolect.engines.workload import EVALUATION_ROWS, Workload, in_order

__all__ = ["Logits", "Outcome", "evaluate_group", "round_of_group", "settle_group"]

Logits = dict[str, Tensor]  # by predictor: [samples, classes]


class Outcome(NamedTuple):
    """One client's round."""

    private: Tree
    messages: dict[str, tuple[Tree, Tensor]]
    loss: Tensor
    before: Logits  # of the test split, before and after local training; empty unless observed
    after: Logits


def _context(work: Workload, packing: Packing, server: Tree, privates: dict[int, Tree]) -> Context:
    facts = [work.facts(client) for client in privates]
    return Context(server, packing.pack(list(privates.values())), packing.pack(facts), {})


def run_stages(
    program: Program,
    work: Workload,
    packing: Packing,
    stages: tuple[Stage, ...],
    context: Context,
    clients: list[int],
    learning_rate: float,
    previous: Result | None = None,
) -> tuple[Context, Result | None]:
    """Runs ``stages`` one after the other and adds their results to the context."""
    rate = torch.tensor(learning_rate).to(work.x)
    for stage in stages:

        def begin(context: Context, *previous: Result, stage: Stage = stage) -> State:
            return program.begin(stage, context, previous[0] if previous else None)

        def advance(
            context: Context, state: State, batches: tuple[Batch, ...], *active: Tensor, stage: Stage = stage
        ) -> State:
            still = active[0] if active else None
            if stage.measure is not None:
                return program.measure(stage, context, state, batches[0], still)
            return program.step(stage, context, state, batches, rate, still)

        state = packing.lift(begin)(context, *([previous] if previous is not None else []))
        lifted = packing.lift(advance)
        for batches, active in packing.feed(work, program, stage, clients):
            state = lifted(context, state, batches, *([active] if active is not None else []))
        previous = packing.lift(lambda context, state: program.end(state))(context, state)
        context = context._replace(results={**context.results, stage.name: previous})
    return context, previous


def round_of_group(
    program: Program,
    work: Workload,
    packing: Packing,
    server: Tree,
    privates: dict[int, Tree],
    learning_rate: float,
    observe: bool,
) -> list[Outcome]:
    """One round of the clients in ``privates``; the caller hands a single one, or a cohort, as the packing says."""
    program = replace(program, differentiate=packing.differentiate)
    clients = list(privates)
    plan: Plan = program.method.plan(program.scene, program.clock)
    context = _context(work, packing, server, privates)
    before = evaluate_context(program, work, packing, context, clients, "test") if observe else None
    context, last = run_stages(program, work, packing, plan.before, context, clients, learning_rate)
    assert last is not None
    context = context._replace(results={**context.results, UPLOAD: last})
    context, _ = run_stages(program, work, packing, plan.after, context, clients, learning_rate, last)
    private, messages = packing.lift(program.finish)(context)
    updated = context._replace(private=private)
    after = evaluate_context(program, work, packing, updated, clients, "test") if observe else None
    rows = packing.unpack((private, messages, context.results[UPLOAD].loss), len(clients))
    return [
        Outcome(*row, before[i] if before else {}, after[i] if after else {}) for i, row in enumerate(rows)
    ]


def settle_group(
    program: Program,
    work: Workload,
    packing: Packing,
    phase: str,
    server: Tree,
    privates: dict[int, Tree],
    learning_rate: float,
) -> list[Tree]:
    """New private state after the stages of the phase ``merged`` or ``end``."""
    program = replace(program, differentiate=packing.differentiate)
    clients = list(privates)
    plan: Plan = program.method.plan(program.scene, program.clock)
    stages = plan.merged if phase == "merged" else plan.end
    settle = program.score if phase == "merged" else program.personalise
    context = _context(work, packing, server, privates)
    context, _ = run_stages(program, work, packing, stages, context, clients, learning_rate)
    return packing.unpack(packing.lift(settle)(context), len(clients))


def evaluate_group(
    program: Program, work: Workload, packing: Packing, server: Tree, privates: dict[int, Tree], split: str
) -> list[Logits]:
    """Logits of every predictor on every client's ``split``."""
    context = _context(work, packing, server, privates)
    return evaluate_context(program, work, packing, context, list(privates), split)


def evaluate_context(
    program: Program, work: Workload, packing: Packing, context: Context, clients: list[int], split: str
) -> list[Logits]:
    statistics = _recalibrated(program, work, packing, context, clients)

    def logits(context: Context, batch: Batch, statistics: Tree) -> Logits:
        found = {}
        for name, predictor in program.predictors(context).items():
            if name in statistics:
                predictor = predictor._replace(buffers={**predictor.buffers, "model": statistics[name]})
            found[name] = program.predict(predictor, batch)
        return found

    lifted = packing.lift(logits)
    with torch.no_grad():
        parts = [lifted(context, batch, statistics) for batch in _rows(work, packing, clients, split)]
    rows = [packing.unpack(part, len(clients)) for part in parts]
    sizes = [len(getattr(work.federation.clients[c], split)) for c in clients]
    return [
        {name: torch.cat([row[i][name] for row in rows])[: sizes[i]] for name in rows[0][i]} if rows else {}
        for i in range(len(clients))
    ]


def _recalibrated(
    program: Program, work: Workload, packing: Packing, context: Context, clients: list[int]
) -> dict[str, Tree]:
    """Normalisation statistics, over the training split, of the predictors that ask for it."""
    if not program.task.structure.buffers:
        return {}
    fold = recalibration()

    def wanted(context: Context) -> dict[str, Model]:
        found = program.predictors(context).items()
        return {n: Model(p.params["model"], p.buffers["model"]) for n, p in found if p.recalibrate}

    def begin(context: Context) -> Tree:
        return {n: fold.init(model, program.view(None, context)) for n, model in wanted(context).items()}

    def add(context: Context, sums: Tree, batch: Batch) -> Tree:
        view = program.view(None, context)
        return {n: fold.add(sums[n], model, batch, view) for n, model in wanted(context).items()}

    with torch.no_grad():
        sums = packing.lift(begin)(context)
        if sums:
            for batch in _rows(work, packing, clients, "train"):
                sums = packing.lift(add)(context, sums, batch)
    return {name: found["buffers"] for name, found in sums.items()}


def _rows(work: Workload, packing: Packing, clients: list[int], split: str) -> list[Batch]:
    """A split in its own order: as it is for a single client, padded and stacked for a cohort."""
    plans = [in_order(getattr(work.federation.clients[c], split)) for c in clients]
    if packing is SINGLE:
        plan = plans[0]
        return [work.batch(i[m], m[m], k[m], {}) for i, m, k in zip(*plan, strict=True)]
    length = max(len(plan.index) for plan in plans)

    def padded(arrays: list[np.ndarray]) -> np.ndarray:  # [C, n, rows]
        return np.stack([np.pad(a, ((0, length - len(a)), (0, 0))) for a in arrays])

    index, mask, key = (padded([plan[f] for plan in plans]) for f in range(3))
    return [work.batch(index[:, t], mask[:, t], key[:, t], {}) for t in range(length)]


def server_logits(program: Program, server: Tree, x: Tensor) -> Tensor:
    """The shared model on the server's test set."""
    found = []
    with torch.no_grad():
        for chunk in x.split(4 * EVALUATION_ROWS):
            ones = torch.ones(len(chunk)).to(x)
            batch = Batch(chunk, torch.zeros(len(chunk)).long().to(x.device), ones, ones.long(), {})
            found.append(program.task.forward(server["params"], server["buffers"], batch, False)[0].logits)
    return torch.cat(found)
