"""The uploads of a round as the rows of a matrix, for distances, norms and weights on the server.

The model and its running statistics are one vector.  What another part sends is a vector of its own, so that a message
of small numbers does not hide behind one of large numbers.  A row is the client's update: its message less that of a
client that has learnt nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from idiolect.core import GatherView, Messages
from idiolect.core.trees import tree_leaves, tree_map

__all__ = ["as_updates", "coordinate_wise", "half_way", "hostile_count", "reweighted", "together"]


def together(messages: Messages, view: GatherView) -> list[tuple[str, ...]]:
    """Returns the names of messages that are one vector, for each vector; all rows of one are there for all others."""
    counts = {name: len(weight) for name, (_, weight) in messages.items()}
    model = tuple(name for name in messages if name in view.model)
    joined = [model] if len({counts[name] for name in model}) == 1 else [(name,) for name in model]
    return [*joined, *((name,) for name in messages if name not in model)]


def as_updates(messages: Messages, view: GatherView, names: tuple[str, ...]) -> Tensor:
    """Returns the updates in some messages as a matrix, [C, P]."""
    rows = [
        (leaf - origin).reshape(len(leaf), -1)
        for name in names
        for leaf, origin in zip(tree_leaves(messages[name][0]), tree_leaves(view.origin[name]), strict=True)
        if leaf.is_floating_point()
    ]
    return torch.cat(rows, 1)


def reweighted(messages: Messages, view: GatherView, weights: Callable[[Tensor, Tensor], Tensor]) -> Messages:
    """Returns messages with other weights.

    Args:
        weights: of (updates [C, P], present weights [C]) of one vector.
    """
    found = dict(messages)
    for names in together(messages, view):
        new = weights(as_updates(messages, view, names), messages[names[0]][1])
        found |= {name: (messages[name][0], new) for name in names}
    return found


def coordinate_wise(messages: Messages, mean: Callable[[Tensor], Tensor]) -> Messages:
    """Returns messages of one row each, whose every number is a mean of its own over the clients, who count alike.

    Args:
        mean: of one tensor of the messages, [C, ...] -> [...].
    """

    def one_row(value: Tensor) -> Tensor:
        return mean(value)[None] if value.is_floating_point() else value[:1]

    return {
        name: (tree_map(one_row, value), torch.ones_like(weight[:1]))
        for name, (value, weight) in messages.items()
    }


def half_way(values: Tensor) -> Tensor:
    """Returns the median over the leading axis; of an even number of values the mean of the two in the middle.

    >>> half_way(torch.tensor([[3.0], [1.0], [2.0], [9.0]])).item()
    2.5
    """
    ordered, count = values.sort(0).values, len(values)
    low, high = ordered[(count - 1) // 2], ordered[count // 2]
    return low + (high - low) / 2


def hostile_count(share: float, count: int) -> int:
    """Returns how many of some uploads are taken to be hostile: the whole numbers in a share of them.

    >>> hostile_count(0.3, 10), hostile_count(0.2, 9), hostile_count(0.29, 100)
    (3, 1, 29)
    """
    return int(share * count + 1e-9)
