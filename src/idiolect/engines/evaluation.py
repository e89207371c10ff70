"""Evaluation of predictors: their logits on clients' splits and on the server's test set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from idiolect.core import Batch, Context, Flats, Model, Program, ServerState, Slot, Tree
from idiolect.core.measures import recalibration
from idiolect.core.trees import Rows, tree_leaves, tree_map
from idiolect.engines.client_packing import SINGLE, Packing
from idiolect.engines.cohort.batches import blocks_of, of_clients, one_size
from idiolect.engines.contract import Logits
from idiolect.engines.device_data import EVALUATION_ROWS, Workload, in_order, sent
from idiolect.federation import BatchPlan

__all__ = ["evaluate_context", "evaluate_group", "group_context", "recalibrated", "server_logits"]

# With fewer rows, a matrix product sums in one order where all clients share a matrix and in another where each client
# has its own.
FEWEST_ROWS = 64


def group_context(
    work: Workload, packing: Packing, server: ServerState, privates: Mapping[int, Tree]
) -> Context:
    """Returns the context of a group of clients, packed."""
    facts = work.facts(next(iter(privates))) if packing is SINGLE else work.facts_of(list(privates))
    trees = privates.values()
    return Context(server, packing.pack(trees if isinstance(trees, Rows) else list(trees)), facts, {})


def evaluate_group(
    program: Program,
    work: Workload,
    packing: Packing,
    server: ServerState,
    privates: Mapping[int, Tree],
    split: str,
) -> list[Logits]:
    """Returns the logits of every predictor on every client's ``split``, in the rows of the program's round."""
    work = work.at(program.clock.round)
    context = group_context(work, packing, server, privates)
    return evaluate_context(program, work, packing, context, list(privates), split)


def evaluate_context(
    program: Program, work: Workload, packing: Packing, context: Context, clients: list[int], split: str
) -> list[Logits]:
    """Returns the logits of every predictor on every client's ``split``, from a packed context."""
    statistics = recalibrated(program, work, packing, context, clients)

    def logits(context: Context, batch: Batch, statistics: Flats) -> Logits:
        found = {}
        for name, predictor in program.predictors(context).items():
            if name in statistics:
                predictor = predictor._replace(buffers={**predictor.buffers, "model": statistics[name]})
            found[name] = program.predict(predictor, batch)
        return found

    lifted = packing.lift(logits)
    sizes = [len(getattr(work.federation.clients[c], split)) for c in clients]
    found: list[list[Logits]] = [[] for _ in clients]
    with torch.no_grad():
        for places, batches in _blocks(work, packing, clients, split):
            own = (context, statistics)
            if len(places) < len(clients):
                own = _only(places, work, *own)
            for batch in batches:
                rows = packing.unpack(lifted(own[0], batch, own[1]), len(places))
                for place, row in zip(places, rows, strict=True):
                    found[place].append(row)
    return [
        {name: torch.cat([row[name] for row in rows])[:size] for name in rows[0]} if rows else {}
        for rows, size in zip(found, sizes, strict=True)
    ]


def _only(places: list[int], work: Workload, context: Context, statistics: Flats) -> tuple[Context, Flats]:
    """Returns the rows of some clients of a group."""
    which = sent(np.asarray(places), work.device)

    def select(leaf: Tensor) -> Tensor:
        return leaf.index_select(0, which)

    return of_clients(select, context), tree_map(select, statistics)


def recalibrated(
    program: Program, work: Workload, packing: Packing, context: Context, clients: list[int]
) -> Flats:
    """Returns normalisation statistics over the training split, for the predictors that ask for them."""
    if not program.task.structure.buffers:
        return {}
    fold = recalibration()

    def wanted(context: Context) -> dict[str, Model]:
        found = program.predictors(context).items()
        return {n: Model(p.params["model"], p.buffers["model"]) for n, p in found if p.recalibrate}

    def begin(context: Context) -> dict[str, Slot]:
        return {n: fold.init(model, program.view(None, context)) for n, model in wanted(context).items()}

    def add(context: Context, sums: dict[str, Slot], batch: Batch) -> dict[str, Slot]:
        view = program.view(None, context)
        return {n: fold.add(sums[n], model, batch, view) for n, model in wanted(context).items()}

    with torch.no_grad():
        sums = packing.lift(begin)(context)
        if sums:
            everyone = [in_order(work.federation.clients[c].train) for c in clients]
            for batch in _batches(work, packing, everyone, 0, max(len(plan.index) for plan in everyone)):
                sums = packing.lift(add)(context, sums, batch)
    return {name: found["buffers"] for name, found in sums.items()}


def _blocks(
    work: Workload, packing: Packing, clients: list[int], split: str
) -> Iterator[tuple[list[int], Iterator[Batch]]]:
    """Yields a split in its own order: the places of clients that have rows left, and their next batches."""
    plans = [in_order(getattr(work.federation.clients[c], split)) for c in clients]
    order = sorted(range(len(clients)), key=lambda place: -len(plans[place].index))
    least = 0 if packing is SINGLE else 1  # in a cohort, a client without rows gets padding
    lengths = [max(len(plans[place].index), least) for place in order]
    for rows, start, stop in blocks_of(lengths, one_size):
        places = sorted(order[rows])
        yield places, _batches(work, packing, [plans[place] for place in places], start, stop)


def _batches(
    work: Workload, packing: Packing, plans: list[BatchPlan], start: int, stop: int
) -> Iterator[Batch]:
    """Yields batches: without padding for a single client, padded and stacked for a cohort."""
    if packing is SINGLE:
        yield from (work.single(i[m], m[m], k[m], {}) for i, m, k in zip(*plans[0], strict=True))
        return
    most = max(int(plan.mask[:1].sum()) for plan in plans)
    width = max(FEWEST_ROWS, 1 << (most - 1).bit_length())

    def padded(arrays: list[NDArray[Any]]) -> NDArray[Any]:  # [C, n, rows]
        cut = [array[start:stop, :width] for array in arrays]
        return np.stack([np.pad(a, ((0, stop - start - len(a)), (0, 0))) for a in cut])

    index, mask, key = (padded([plan[f] for plan in plans]) for f in range(3))
    yield from (work.batch(index[:, t], mask[:, t], key[:, t], {}) for t in range(stop - start))


def server_logits(program: Program, server: ServerState, x: Tensor) -> Tensor:
    """Returns the logits of the shared model on the server's test set."""
    found, predictor = [], program.shared_model(server)
    like = tree_leaves(server["params"])[0]
    with torch.no_grad():
        for chunk in torch.split(x, 4 * EVALUATION_ROWS):
            ones = torch.ones(len(chunk)).to(like)
            batch = Batch(chunk, torch.zeros(len(chunk)).long().to(x.device), ones, ones.long(), {})
            found.append(program.predict(predictor, batch))
    return torch.cat(found)
