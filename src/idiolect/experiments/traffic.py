"""Bytes that travel: four for every scalar, summed over clients."""

from __future__ import annotations

from torch import Tensor

from idiolect.core import Method, Plan, Tree
from idiolect.core.trees import Rows, count_scalars

__all__ = ["bytes_down", "bytes_up"]

BYTES_PER_SCALAR = 4


def bytes_up(method: Method, messages: dict[str, tuple[Tree, Tensor]], cohort_size: int) -> int:
    """What the cohort uploads: the values of its messages, or as much of them as a part says travels.

    Args:
        messages: stacked over the cohort.
    """
    counts = {part.name: part.scalars for part in method.parts}
    scalars = 0
    for part, (values, _) in messages.items():
        count = counts.get(part)
        scalars += sum(map(count, Rows(values, cohort_size))) if count else count_scalars(values)
    return BYTES_PER_SCALAR * scalars


def bytes_down(
    sent: Tree, plan: Plan, round: int, cohort_size: int, population: int, buffers: str = "average"
) -> int:
    """What the clients download.

    A method whose every client scores the new model sends it to all of them after each merge; the next round
    then starts from what they hold already.  Statistics travel where they are averaged: private ones stay where
    they are, frozen ones are those of the initial model.
    """
    scalars = count_scalars(sent if buffers == "average" else {**sent, "buffers": {}})
    if not plan.merged:
        return BYTES_PER_SCALAR * scalars * cohort_size
    return BYTES_PER_SCALAR * scalars * (population + (cohort_size if round == 0 else 0))
