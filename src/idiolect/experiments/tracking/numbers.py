"""The numbers of a round under names that every tracker takes: letters, digits, `.`, `_`, `-` and `/`."""

from __future__ import annotations

import re

import pyarrow as pa

__all__ = ["numbers_of"]

COSTS = ("train_loss", "seconds", "bytes_down", "bytes_up")
KEYS = ["split", "population", "moment", "predictor", "metric"]


def numbers_of(rounds: pa.Table, rows: pa.Table) -> dict[str, float]:
    """What one round cost, `round/...`, and means over clients of what was measured after it.

    A mean is called `<split>/<population>/<moment>/<predictor>/<metric>`, as `test/all/before/companion/accuracy`;
    what was picked on test data keeps its word: `test/all/before/mix-oracle/accuracy`.

    Args:
        rounds: the row of the round, or none where it was told before.
        rows: measurements.
    """
    found = {f"round/{name}": float(line[name]) for line in rounds.to_pylist() for name in COSTS}
    means = rows.to_pandas().dropna(subset="value").groupby(KEYS, sort=False)["value"].mean()
    return found | {"/".join(map(_plain, keys)): float(mean) for keys, mean in means.items()}


def _plain(word: str) -> str:
    """A word of letters, digits, `.`, `_` and `-`.

    >>> _plain("mix(0.5)"), _plain("teacher round")
    ('mix-0.5', 'teacher-round')
    """
    return re.sub(r"[^\w.]+", "-", word).strip("-")
