"""Bytes that travel: four for every scalar, summed over clients."""

from __future__ import annotations

from idiolect.core import Plan, Tree
from idiolect.core.trees import count_scalars

__all__ = ["bytes_down", "bytes_up"]

BYTES_PER_SCALAR = 4


def bytes_up(messages: list[dict[str, Tree]]) -> int:
    """What the cohort uploads: the values of its messages."""
    return BYTES_PER_SCALAR * sum(count_scalars(value) for sent in messages for value, _ in sent.values())


def bytes_down(sent: Tree, plan: Plan, round: int, cohort_size: int, population: int) -> int:
    """What the clients download.

    A method whose every client scores the new model sends it to all of them after each merge; the next round
    then starts from what they hold already.
    """
    scalars = count_scalars(sent)
    if not plan.merged:
        return BYTES_PER_SCALAR * scalars * cohort_size
    return BYTES_PER_SCALAR * scalars * (population + (cohort_size if round == 0 else 0))
