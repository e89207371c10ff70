"""What runs cost: rounds, bytes and operations up to a target, the best trade-offs, and whether seconds compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from idiolect.errors import refuse_outside
from idiolect.records import Run

__all__ = ["Cost", "cost_to_target", "on_one_machine", "pareto", "round_of_target"]


class Cost(NamedTuple):
    """The round that reaches a target, and what was spent up to and including it; None where no round does.

    Args:
        flops: floating-point operations of all clients; None also where the run has not counted them.
        simulated_seconds: None also where nothing said how fast clients are.
    """

    round: int | None
    bytes_down: int | None
    bytes_up: int | None
    flops: float | None = None
    simulated_seconds: float | None = None


def round_of_target(
    points: pd.Series, target: float, *, window: int = 1, higher_is_better: bool = True
) -> int | None:
    """Returns the first round at which the mean of the last `window` measurements reaches `target`, or None.

    Args:
        points: a value by round, as `curve` returns it.

    >>> round_of_target(pd.Series({5: 0.4, 10: 0.7, 15: 0.6}), 0.6)
    10
    >>> round_of_target(pd.Series({5: 0.4, 10: 0.7, 15: 0.6}), 0.6, window=2)
    15
    """
    refuse_outside("window", window, 1)
    ordered = points.sort_index()
    if len(ordered) < window:
        return None
    smooth = np.lib.stride_tricks.sliding_window_view(ordered.to_numpy(float), window).mean(axis=1)
    there = np.flatnonzero(smooth >= target if higher_is_better else smooth <= target)
    return int(ordered.index[there[0] + window - 1]) if len(there) else None


def cost_to_target(
    points: pd.Series,
    rounds: pd.DataFrame,
    target: float,
    *,
    window: int = 1,
    higher_is_better: bool = True,
) -> Cost:
    """Returns the rounds, bytes, operations and simulated time needed to reach `target`.

    Args:
        rounds: the run's table of rounds, whose bytes and operations are sums over the clients of a round.
    """
    reached = round_of_target(points, target, window=window, higher_is_better=higher_is_better)
    if reached is None:
        return Cost(None, None, None)
    spent = rounds[rounds["round"] <= reached]
    flops, seconds = (
        float(spent[name].sum()) if name in spent and bool(spent[name].notna().all()) else None
        for name in ("flops", "simulated_seconds")
    )
    return Cost(reached, int(spent["bytes_down"].sum()), int(spent["bytes_up"].sum()), flops, seconds)


def pareto(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Returns the names on the Pareto front of (cost, value), cheapest first: nothing costs less and is as good.

    Points with a coordinate that is NaN are left out; of equal points all are on the front.

    >>> pareto({"a": (1.0, 0.5), "b": (2.0, 0.8), "c": (2.5, 0.7), "d": (2.0, 0.8)})
    ['a', 'b', 'd']
    """
    known = {name: point for name, point in points.items() if point[0] == point[0] and point[1] == point[1]}

    def beaten(point: tuple[float, float]) -> bool:
        cost, value = point
        return any(c <= cost and v >= value and (c, v) != point for c, v in known.values())

    return [name for name, point in sorted(known.items(), key=lambda item: item[1]) if not beaten(point)]


def on_one_machine(runs: Sequence[Run]) -> bool:
    """Returns whether all runs come from one kind of machine, so that their seconds can be compared.

    It takes the same processor, cores, memory and GPU, as manifests tell; a run that does not tell is on no machine.
    """
    told = [run.manifest.get("hardware") for run in runs]
    return bool(told) and all(told) and all(one == told[0] for one in told)
