"""Divergence: the checks that find numbers which are no longer finite, and the exception that they raise.

All engines hand what clients send and keep to these checks, so that a run diverges in one place on every engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from idiolect.core import Messages, Tree
from idiolect.core.trees import all_finite, any_nan, tree_leaves
from idiolect.errors import UserError
from idiolect.evaluation import Scores
from idiolect.methods import label
from idiolect.records import Divergence

__all__ = [
    "ON_DIVERGENCE",
    "Diverged",
    "broken_rows",
    "refuse_broken",
    "refuse_broken_scores",
    "refuse_broken_server",
    "settle_moment",
]

ON_DIVERGENCE = ("stop", "record")
KEPT = "private"  # the name of what a client keeps
LOSS = "loss"  # the metric that is undefined only where outputs are
SENTENCES = {
    "training": "client {client} got parameters that are not finite in round {round}; {advice}",
    "after merge": "client {client} got parameters that are not finite after the merge of round {round}; {advice}",
    "end": "client {client} got parameters that are not finite after round {round}; {advice}",
    "evaluation": "a model of client {client} gives outputs that are not finite after round {round}; {advice}",
    "merge": "the merge of round {round} gave parameters that are not finite; lower the server's learning rate or the "
    "clients'",
    "server stage": "the server's own stage of round {round} gave parameters that are not finite; lower its learning "
    "rate",
}
ADVICE = "lower learning_rate or set clip_norm"


class Diverged(UserError):
    """A run whose numbers are no longer finite.

    Args:
        method: the method's name, as tables show it.
        divergence: where it happened.
    """

    def __init__(self, method: str, divergence: Divergence) -> None:
        self.method, self.divergence = method, divergence
        place = {"round": divergence.round, "client": divergence.client, "advice": ADVICE}
        super().__init__(f"{method}: {SENTENCES[divergence.moment].format(**place)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Diverged, (self.method, self.divergence)

    @property
    def round(self) -> int:
        return self.divergence.round

    @property
    def client(self) -> int | None:
        return self.divergence.client


def broken_rows(messages: Messages, losses: Tensor, privates: Sequence[Tree]) -> Tensor:
    """Returns by client whether what it sends is not finite or what it keeps holds a NaN.

    Args:
        privates: what the clients keep; may be nothing.
    """
    broken = ~all_finite((messages, losses))
    return broken | any_nan(privates) if privates and tree_leaves(privates[0]) else broken


def refuse_broken(
    method: str,
    moment: str,
    round: int,
    clients: Sequence[int],
    broken: Tensor,
    tree_of: Callable[[int], Tree],
) -> None:
    """Raises for the first client that is ``broken``; reads the device once for all of them.

    Args:
        method: as the experiment names it.
        round: from 1.
        tree_of: returns what a client sends and keeps, by its place among the clients.
    """
    found = [place for place, is_broken in enumerate(broken.tolist()) if is_broken]
    if found:
        what = _first_broken(tree_of(found[0]))
        raise Diverged(label(method), Divergence(round, int(clients[found[0]]), what, moment))


def settle_moment(phase: str, round: int) -> tuple[str, int]:
    """Returns the moment of a phase of settling, ``merged`` or ``end``, and its round from 1.

    Args:
        round: of the clock, which stands at the number of rounds at the end of a run.
    """
    return ("after merge", round + 1) if phase == "merged" else ("end", round)


def refuse_broken_server(method: str, moment: str, round: int, params: Tree) -> None:
    """Raises where the server's parameters are not finite."""
    leaves = [leaf for leaf in tree_leaves(params) if leaf.numel()]
    if leaves and not bool(torch.stack(torch._foreach_norm(leaves, math.inf)).isfinite().all()):
        raise Diverged(label(method), Divergence(round, None, _first_broken({"params": params}), moment))


def refuse_broken_scores(
    method: str, round: int, clients: Sequence[int], scores: Scores, samples: Sequence[int], classes: bool
) -> None:
    """Raises for the first client with test samples on which the outputs of a predictor are not finite.

    Outputs of minus infinity are allowed where they rule out a class.

    Args:
        samples: test samples by client.
        classes: the task has classes; without them an infinite loss is a broken output too.
    """
    for predictor, metrics in scores.items():
        for client, held, loss in zip(clients, samples, metrics.get(LOSS, ()), strict=False):
            if held and (math.isnan(loss) or (math.isinf(loss) and not classes)):
                what = f"outputs of {predictor}"
                raise Diverged(label(method), Divergence(round, client, what, "evaluation"))


def _first_broken(tree: Tree) -> str:
    """Returns the name of the first leaf that is not finite; what a client keeps may be infinite, but no NaN."""
    for name, leaf in _named_leaves(tree, ()):
        if leaf.is_floating_point():
            broken = leaf.isnan() if name.startswith(KEPT) else ~leaf.isfinite()
            if bool(broken.any()):
                return name
    return ""


def _named_leaves(tree: Any, path: tuple[Any, ...]) -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Mapping):
        for name, below in tree.items():
            yield from _named_leaves(below, (*path, name))
    elif isinstance(tree, tuple | list):
        for name, below in zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True):
            yield from _named_leaves(below, (*path, name))
    else:
        yield "/".join(map(str, path)), tree
