"""The batches of a group of clients in one stage, and the blocks of clients that step together.

Batches are stacked for any block of the group.  The group is sorted by its number of steps, longest first, so that a
block is a range of rows.  Clients that are done are the last rows of a block and leave it; the others go on in smaller
blocks, so that no step is computed for a client that has none left.

Shapes: U batches of the longest client, C clients, B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from idiolect.core import Batch, Context, Program, Stage, State
from idiolect.core.trees import Form, flatten, tree_map, unflatten
from idiolect.engines.device_data import Workload

__all__ = [
    "ClientBlock",
    "CohortBatches",
    "RunBlock",
    "blocks_of",
    "few_sizes",
    "of_clients",
    "one_size",
    "padded_feed",
    "run_blocks",
    "stack_batches",
]
LARGEST = 8  # most clients in a block of ``few_sizes``; with more a core is hardly faster


class CohortBatches(NamedTuple):
    """The batches of all clients of a group.

    Args:
        order: for each column, the place of its client in the group as it was given.
        steps: number of steps of each client.
        per_step: batches that one step reads.
        arrays: index, mask and key of the rows, each [U, C, B], zeros where a client has none.
        counts: real rows of each batch [U, C].
        draws: by part, the draws of each step [T, C, draws].
    """

    work: Workload
    order: list[int]
    steps: list[int]
    per_step: int
    arrays: tuple[Tensor, Tensor, Tensor]
    counts: np.ndarray
    draws: dict[str, Tensor]

    def step(self, t: int, clients: slice, width: int | None = None) -> tuple[Batch, ...]:
        """Gathers what some clients read in step ``t``, cut to ``width`` rows or the power of two that holds all."""
        drawn = {part: numbers[t, clients] for part, numbers in self.draws.items()}
        found = []
        for u in range(t * self.per_step, (t + 1) * self.per_step):
            rows = slice(width or 1 << int(self.counts[u, clients].max(initial=1) - 1).bit_length())
            index, mask, key = (array[u, clients, rows] for array in self.arrays)
            found.append(self.work.gather(index, mask, key, drawn))
        return tuple(found)

    def between(
        self, clients: slice, start: int, stop: int, width: int | None = None
    ) -> Iterator[tuple[tuple[Batch, ...], None]]:
        """Yields what some clients read in the steps ``start <= t < stop``."""
        for t in range(start, stop):
            yield self.step(t, clients, width), None


def stack_batches(
    work: Workload,
    program: Program,
    stage: Stage,
    clients: Sequence[int],
    with_keys: bool = True,
    as_given: bool = False,
) -> CohortBatches:
    """Stacks the batches of all clients of a group.

    Args:
        with_keys: whether batches hold the keys of their examples.
        as_given: whether the clients stay in their order.
    """
    planned = [work.plan(program, stage, client, with_keys) for client in clients]
    steps = [len(plan.index) // stage.batches_per_step for plan, _ in planned]
    order = list(range(len(clients)))
    if not as_given:
        order.sort(key=lambda place: -steps[place])
    plans, draws = zip(*(planned[place] for place in order), strict=True)
    arrays = [_side_by_side(each) for each in zip(*plans, strict=True)]
    index, mask, key = (torch.from_numpy(array).to(work.y.device) for array in arrays)
    drawn = {part: _side_by_side([each[part] for each in draws]) for part in draws[0]}
    return CohortBatches(
        work,
        order,
        [steps[place] for place in order],
        stage.batches_per_step,
        (index, mask, key),
        arrays[1].sum(2),
        {part: torch.from_numpy(array).to(work.like) for part, array in drawn.items()},
    )


def padded_feed(
    work: Workload, program: Program, stage: Stage, clients: list[int]
) -> Iterator[tuple[tuple[Batch, ...], Tensor | None]]:
    """Yields the batches of all clients step by step, with the clients that are active [C]; None where all are.

    Clients that are done go on with batches of padding.  A GPU runs a stage in this way if
    its step cannot be traced.
    """
    batches = stack_batches(work, program, stage, clients, as_given=True)
    steps = np.array(batches.steps)
    for t in range(steps.max(initial=0)):
        active = None if t < steps.min() else torch.from_numpy(t < steps).to(work.y.device)
        yield batches.step(t, slice(None)), active


def _side_by_side(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks the clients' arrays along a second axis [T, C, ...], with zeros where a client has fewer rows."""
    found = np.zeros((max(map(len, arrays)), len(arrays), *arrays[0].shape[1:]), arrays[0].dtype)
    for c, array in enumerate(arrays):
        found[: len(array), c] = array
    return found


class ClientBlock(NamedTuple):
    """A range of clients that all make the steps ``start <= t < stop``."""

    rows: slice
    start: int
    stop: int


RunBlock = Callable[[ClientBlock, Context, State], State]


def blocks_of(steps: Sequence[int], sizes: Callable[[int], list[int]]) -> Iterator[ClientBlock]:
    """Yields the blocks of a group, each after the block whose clients it continues.

    Args:
        steps: the number of steps of each client, longest first.
        sizes: returns the sizes of the blocks into which a number of clients is divided.

    >>> [(b.rows.start, b.rows.stop, b.start, b.stop) for b in blocks_of([5, 2, 2], one_size)]
    [(0, 3, 0, 2), (0, 1, 2, 5)]
    >>> [(b.rows.start, b.rows.stop, b.start, b.stop) for b in blocks_of([5, 2, 2], few_sizes)]
    [(0, 2, 0, 2), (0, 1, 2, 5), (2, 3, 0, 2)]
    """
    return _blocks(steps, sizes, 0, len(steps), 0)


def _blocks(
    steps: Sequence[int], sizes: Callable[[int], list[int]], first: int, last: int, start: int
) -> Iterator[ClientBlock]:
    left = sum(count > start for count in steps[first:last])
    for size in sizes(left) if left else []:
        stop = steps[first + size - 1]
        yield ClientBlock(slice(first, first + size), start, stop)
        yield from _blocks(steps, sizes, first, first + size, stop)
        first += size


def one_size(n_clients: int) -> list[int]:
    """Returns one block of all clients."""
    return [n_clients]


def few_sizes(n_clients: int) -> list[int]:
    """Returns blocks whose sizes are powers of two, so that a step is traced for few sizes.

    >>> few_sizes(21)
    [8, 8, 4, 1]
    """
    found, size = [], LARGEST
    while n_clients:
        found += [size] * (n_clients // size)
        n_clients, size = n_clients % size, size // 2
    return found


def run_blocks(
    blocks: Iterable[ClientBlock], order: list[int], context: Context, state: State, run: RunBlock
) -> State:
    """Returns the state of every client after all blocks.

    Args:
        order: for each client of the blocks, its place in context and state.
        run: runs the steps of a block on its rows of context and state; it may write over the state.
    """
    leaves, form = flatten(state)
    places = torch.tensor(order, device=context.facts.samples.device)
    is_sorted = order == sorted(order)
    if is_sorted:
        held = [leaf.clone(memory_format=torch.contiguous_format) for leaf in leaves]
    else:
        held = [leaf.index_select(0, places) for leaf in leaves]
        context = of_clients(lambda leaf: leaf.index_select(0, places), context)

    def after(block: ClientBlock, context: Context, own: list[Tensor]) -> list[Tensor]:
        new, found = flatten(run(block, context, _state(own, form)))
        if found != form or _kinds(new) != _kinds(own):
            raise TypeError("a step changes the form of the state")
        return new

    blocks = list(blocks)
    if [block.rows for block in blocks] == [slice(0, len(order))]:
        return _state(after(blocks[0], context, held), form)
    for block in blocks:
        own = [leaf[block.rows] for leaf in held]
        _write(own, after(block, of_clients(itemgetter(block.rows), context), own))
    back = places.argsort()
    return _state(held if is_sorted else [leaf.index_select(0, back) for leaf in held], form)


def _state(leaves: list[Tensor], form: Form) -> State:
    found: State = unflatten(leaves, form)
    return found


def _kinds(leaves: list[Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    return [(leaf.shape, leaf.dtype) for leaf in leaves]


def _write(own: list[Tensor], new: list[Tensor]) -> None:
    """Copies new leaves into old ones, unless a step wrote them in place.

    A new leaf that lies in the memory of another old leaf is copied first.
    """
    old = {leaf.untyped_storage().data_ptr() for leaf in own}
    moved = [(place, leaf) for place, leaf in zip(own, new, strict=True) if leaf is not place]
    read = [leaf.clone() if leaf.untyped_storage().data_ptr() in old else leaf for _, leaf in moved]
    for (place, _), leaf in zip(moved, read, strict=True):
        place.copy_(leaf)


def of_clients(select: Callable[[Tensor], Tensor], context: Context) -> Context:
    """Applies ``select`` to every leaf that has a row for each client; the server's leaves have none."""
    own = (context.private, context.facts, context.results)
    private, facts, results = tree_map(select, own)
    return context._replace(private=private, facts=facts, results=results)
