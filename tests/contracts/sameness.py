"""What "the same" means: exact is bit for bit, equal is up to the rounding of a few rounds."""

from __future__ import annotations

import hashlib
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from idiolect.core.trees import Rows
from idiolect.experiments.simulated_clients import Simulation

__all__ = ["assert_equal", "assert_exact", "copied", "digest", "leaves", "numbers", "privates", "states"]

FLOAT64 = 1e-9
FLOAT32 = 1e-5


def leaves(tree: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Tensor]:
    """The tensors of nested dicts, lists and tuples, by where they stand."""
    if isinstance(tree, Tensor):
        return {path: tree}
    if isinstance(tree, list | tuple | Rows):
        tree = dict(enumerate(tree))
    if not isinstance(tree, dict):
        raise TypeError(f"{path} holds {type(tree).__name__}, which is no tree of tensors")
    return {
        place: leaf for key, below in tree.items() for place, leaf in leaves(below, (*path, str(key))).items()
    }


def copied(tree: Any) -> dict[tuple[str, ...], Tensor]:
    """The tensors as they are now, whatever happens to the originals."""
    return {path: leaf.detach().clone() for path, leaf in leaves(tree).items()}


def assert_exact(found: Any, expected: Any) -> None:
    """The same tensors in the same places, bit for bit."""
    ours, theirs = leaves(found), leaves(expected)
    assert ours.keys() == theirs.keys()
    for path, leaf in ours.items():
        assert _bits(leaf) == _bits(theirs[path]), f"{'/'.join(path)} is another tensor"


def assert_equal(found: Any, expected: Any, tolerance: float = FLOAT64) -> None:
    """The same tensors in the same places, to ``tolerance`` relative to the largest number of each.

    Below a thousandth the tolerance shrinks no further: the gradient of a bias before batch normalisation is nothing
    but rounding.
    """
    ours, theirs = leaves(found), leaves(expected)
    assert ours.keys() == theirs.keys()
    for path, leaf in ours.items():
        other = theirs[path]
        assert (leaf.dtype, leaf.shape) == (other.dtype, other.shape), "/".join(path)
        scale = float(other.abs().nan_to_num(posinf=0).max()) if other.numel() else 0.0
        torch.testing.assert_close(
            leaf,
            other,
            rtol=0,
            atol=tolerance * max(scale, 1e-3),
            equal_nan=True,
            msg=lambda m, p=path: f"{'/'.join(p)}: {m}",
        )


def privates(simulation: Simulation) -> dict[int, Any]:
    return simulation.store.rows(range(simulation.setting.federation.population))


def states(simulation: Simulation) -> dict[str, Any]:
    """The server's state and every client's, those never selected included."""
    return {"server": simulation.server, "private": privates(simulation)}


def numbers(simulation: Simulation) -> dict[str, list[dict[str, Any]]]:
    """Both tables of the run without the seconds it took."""
    return {
        "rows": simulation.rows.table().to_pylist(),
        "rounds": timeless(simulation.rounds.table()).to_pylist(),
    }


def timeless(rounds: pa.Table) -> pa.Table:
    return rounds.drop_columns(["seconds"])


def digest(tree: Any) -> str:
    """Changes with any bit of the tensors and with their places."""
    found = hashlib.sha256()
    for path, leaf in leaves(tree).items():
        found.update(repr((path, *_bits(leaf))).encode())
    return found.hexdigest()


def _bits(leaf: Tensor) -> tuple[str, tuple[int, ...], bytes]:
    return str(leaf.dtype), tuple(leaf.shape), leaf.detach().contiguous().numpy().tobytes()
