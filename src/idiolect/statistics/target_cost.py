"""Rounds and bytes that a run needs to reach a target accuracy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from idiolect.errors import refuse_outside

__all__ = ["Cost", "cost_to_target", "round_of_target"]


class Cost(NamedTuple):
    """The round that reaches a target, and the bytes up to and including it; None where no round does."""

    round: int | None
    bytes_down: int | None
    bytes_up: int | None


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
    """Returns the rounds and bytes needed to reach `target`.

    Args:
        rounds: the run's table of rounds, whose bytes are sums over the clients of a round.
    """
    reached = round_of_target(points, target, window=window, higher_is_better=higher_is_better)
    if reached is None:
        return Cost(None, None, None)
    spent = rounds[rounds["round"] <= reached]
    return Cost(reached, int(spent["bytes_down"].sum()), int(spent["bytes_up"].sum()))
