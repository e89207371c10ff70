"""What the page shows over rounds: learning curves, and the bytes that each point had cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from idiolect.statistics import Groups, curve, server_curve

__all__ = ["bytes_part", "curves_part"]

MOST_POINTS = 250  # of one curve; of longer ones every second, third, ... and the last


def curves_part(groups: Groups, metric: str) -> list[dict[str, Any]]:
    """By method `global`, `personal` and `end`, each with `round`, `value`, `sd` over seeds (n - 1).

    A round that not every seed measured is left out, so a curve averages the same seeds throughout.
    """
    return [
        {
            "global": _over_seeds([server_curve(run, metric) for run in runs]),
            "personal": _over_seeds([curve(run, metric=metric) for run in runs]),
            "end": _over_seeds([curve(run, metric=metric, moment="end").tail(1) for run in runs]),
        }
        for runs in groups.values()
    ]


def bytes_part(groups: Groups, curves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By method, bytes up to and with each round of a curve, mean over seeds: `round`, `down`, `up`."""
    lines = []
    for runs, found in zip(groups.values(), curves, strict=True):
        rounds = sorted({number for part in found.values() for number in part["round"]})
        spent = [
            run.rounds.set_index("round")[["bytes_down", "bytes_up"]].sort_index().cumsum() for run in runs
        ]
        mean = sum(table.reindex(rounds, method="ffill").fillna(0) for table in spent) / len(spent)
        lines.append({"round": rounds, "down": mean["bytes_down"].tolist(), "up": mean["bytes_up"].tolist()})
    return lines


def _over_seeds(curves: list[pd.Series]) -> dict[str, list[Any]]:
    together = pd.concat(curves, axis=1).dropna()
    if len(together) > MOST_POINTS:
        together = together.iloc[np.unique(np.linspace(0, len(together) - 1, MOST_POINTS).astype(int))]
    return {
        "round": [int(number) for number in together.index],
        "value": together.mean(axis=1).tolist(),
        "sd": together.std(axis=1, ddof=1).tolist(),
    }
