"""Clients of unequal work side by side: whoever is done leaves, and the others go on in smaller blocks.

A group stands in order of its steps, longest first, so that a block is a run of neighbours and those who leave it are
its last.  No step is made on a client that has none left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor

from idiolect.core import Context, State
from idiolect.core.trees import Tree, flatten, tree_map, unflatten

__all__ = ["Block", "RunBlock", "blocks_of", "few_sizes", "of_clients", "one_size", "run_blocks"]

LARGEST = 8  # clients of one block where sizes shall be few; more at once are hardly faster on a core


class Block(NamedTuple):
    """Neighbours who all make the steps ``start <= t < stop``."""

    rows: slice
    start: int
    stop: int


RunBlock = Callable[[Block, Context, State], State]


def blocks_of(steps: Sequence[int], sizes: Callable[[int], list[int]]) -> Iterator[Block]:
    """The blocks of a group, each after the one whose clients it goes on with.

    Args:
        steps: of each client, longest first.
        sizes: of the blocks that a number of clients is divided into.

    >>> [(b.rows.start, b.rows.stop, b.start, b.stop) for b in blocks_of([5, 2, 2], one_size)]
    [(0, 3, 0, 2), (0, 1, 2, 5)]
    >>> [(b.rows.start, b.rows.stop, b.start, b.stop) for b in blocks_of([5, 2, 2], few_sizes)]
    [(0, 2, 0, 2), (0, 1, 2, 5), (2, 3, 0, 2)]
    """
    return _blocks(steps, sizes, 0, len(steps), 0)


def _blocks(
    steps: Sequence[int], sizes: Callable[[int], list[int]], first: int, last: int, start: int
) -> Iterator[Block]:
    left = sum(count > start for count in steps[first:last])
    for size in sizes(left) if left else []:
        stop = steps[first + size - 1]
        yield Block(slice(first, first + size), start, stop)
        yield from _blocks(steps, sizes, first, first + size, stop)
        first += size


def one_size(n_clients: int) -> list[int]:
    """All in one block."""
    return [n_clients]


def few_sizes(n_clients: int) -> list[int]:
    """In blocks of powers of two, so that a step is traced for few sizes.

    >>> few_sizes(21)
    [8, 8, 4, 1]
    """
    found, size = [], LARGEST
    while n_clients:
        found += [size] * (n_clients // size)
        n_clients, size = n_clients % size, size // 2
    return found


def run_blocks(
    blocks: Iterable[Block], order: list[int], context: Context, state: State, run: RunBlock
) -> State:
    """The state of every client after all blocks.

    Args:
        order: where the clients of the blocks stand in context and state.
        run: the steps of a block on its rows of context and state; the state's memory is its own to write over.
    """
    leaves, form = flatten(state)
    places = torch.tensor(order, device=context.facts.samples.device)
    is_sorted = order == sorted(order)
    if is_sorted:
        held = [leaf.clone(memory_format=torch.contiguous_format) for leaf in leaves]
    else:
        held = [leaf.index_select(0, places) for leaf in leaves]
        context = of_clients(lambda leaf: leaf.index_select(0, places), context)

    def after(block: Block, context: Context, own: list[Tensor]) -> list[Tensor]:
        new, found = flatten(run(block, context, unflatten(own, form)))
        if found != form or _kinds(new) != _kinds(own):
            raise TypeError("a step changes the form of the state")
        return new

    blocks = list(blocks)
    if [block.rows for block in blocks] == [slice(0, len(order))]:
        return unflatten(after(blocks[0], context, held), form)
    for block in blocks:
        own = [leaf[block.rows] for leaf in held]
        _write(own, after(block, of_clients(itemgetter(block.rows), context), own))
    back = places.argsort()
    return unflatten(held if is_sorted else [leaf.index_select(0, back) for leaf in held], form)


def _kinds(leaves: list[Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    return [(leaf.shape, leaf.dtype) for leaf in leaves]


def _write(own: list[Tensor], new: list[Tensor]) -> None:
    """Copies what is not written over already; what a step took from another place of the state is read first."""
    old = {leaf.untyped_storage().data_ptr() for leaf in own}
    moved = [(place, leaf) for place, leaf in zip(own, new, strict=True) if leaf is not place]
    read = [leaf.clone() if leaf.untyped_storage().data_ptr() in old else leaf for _, leaf in moved]
    for (place, _), leaf in zip(moved, read, strict=True):
        place.copy_(leaf)


def of_clients(select: Callable[[Tensor], Tensor], context: Context) -> Context:
    """``select`` of every leaf that has a row for each client; what the server sent has none."""
    own: Tree = (context.private, context.facts, context.results)
    private, facts, results = tree_map(select, own)
    return context._replace(private=private, facts=facts, results=results)
