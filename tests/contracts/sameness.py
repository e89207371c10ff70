"""What "the same" means, as in ``idiolect.testing``, and the tables of a run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.testing.sameness import (
    FLOAT32,
    FLOAT64,
    assert_equal,
    assert_exact,
    copied,
    digest,
    leaves,
    privates,
    states,
)

__all__ = [
    "FLOAT32",
    "FLOAT64",
    "assert_equal",
    "assert_exact",
    "copied",
    "digest",
    "leaves",
    "numbers",
    "privates",
    "states",
]


def numbers(simulation: Simulation) -> dict[str, list[dict[str, Any]]]:
    """Both tables of the run without the seconds it took."""
    return {
        "rows": simulation.rows.table().to_pylist(),
        "rounds": timeless(simulation.rounds.table()).to_pylist(),
    }


def timeless(rounds: pa.Table) -> pa.Table:
    return rounds.drop_columns(["seconds"])
