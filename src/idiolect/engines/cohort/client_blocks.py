"""Blocks of clients that step together: clients that are done leave, and the others go on in smaller blocks.

A group is sorted by its number of steps, longest first, so that a block is a range of rows and the clients that leave
it are its last.  No step is computed for a client that has none left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

import torch
from torch import Tensor

from idiolect.core import Context, State
from idiolect.core.trees import Form, flatten, tree_map, unflatten

__all__ = ["ClientBlock", "RunBlock", "blocks_of", "few_sizes", "of_clients", "one_size", "run_blocks"]

LARGEST = 8  # clients of a block of ``few_sizes``; more at once are hardly faster on a core


class ClientBlock(NamedTuple):
    """A range of clients that all make the steps ``start <= t < stop``."""

    rows: slice
    start: int
    stop: int


RunBlock = Callable[[ClientBlock, Context, State], State]


def blocks_of(steps: Sequence[int], sizes: Callable[[int], list[int]]) -> Iterator[ClientBlock]:
    """Yields the blocks of a group, each after the block whose clients it continues.

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
    """Returns blocks of powers of two, so that a step is traced for few sizes.

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
        order: place in context and state of each client of the blocks.
        run: the steps of a block on its rows of context and state; it may write over the state.
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
