"""Whether two rows trained the same model: a row that did not is not compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["allowed", "difference", "rounding", "verdict"]

SLACK = 1.5  # of the sway, which is the furthest of a few tries


def difference(after: Path, base: Path, start: Path) -> float:
    """||after - base|| / ||base - start||, over all tensors of models that lie in npz files."""
    with np.load(after) as one, np.load(base) as other, np.load(start) as first:
        gaps = [_squared(one[name] - other[name]) for name in other.files]
        moves = [_squared(other[name] - first[name]) for name in other.files]
    return float(np.sqrt(sum(gaps) / sum(moves)))


def _squared(array: np.ndarray) -> float:
    return float(np.square(array.astype(np.float64)).sum())


def tolerance(precision: str, device: str) -> float:
    """Of one round: float64 equal, float32 up to rounding, anything coarser up to its digits.

    On a GPU the plain loop itself rounds: PyTorch convolves in TF32 there unless told otherwise.  A CPU has no TF32.  A
    step left out of seven would be 0.14.
    """
    if precision == "float64":
        return 1e-9
    if precision == "bf16":
        return 2e-1
    return 1e-3 if device == "cpu" else 1e-1


def rounding(precision: str, device: str) -> float:
    """By how much a number of the plain loop may be off, relative to it; on a GPU it convolves in TF32."""
    if precision == "float64":
        return 2.0**-52
    return 2.0**-23 if device == "cpu" else 2.0**-11


def allowed(precision: str, device: str, sway: float = 0.0) -> float:
    """How far a row's model may be from the plain loop's.

    Args:
        sway: how far roundings of its start carried the plain loop itself.
    """
    return max(tolerance(precision, device), SLACK * sway)


def verdict(found: float, limit: float) -> str:
    """Empty, or the sentence that keeps the row from being compared."""
    if found <= limit:
        return ""
    return (
        f"its model after one round differs from the plain loop's by {found:.1e} of the way, over {limit:.1e}"
    )
