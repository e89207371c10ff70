"""What "the same" means: exact is bit for bit, equal is up to the rounding of a few rounds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from idiolect.core.trees import Rows
from idiolect.experiments.rounds.simulated_clients import Simulation

__all__ = [
    "FLOAT32",
    "FLOAT64",
    "assert_equal",
    "assert_exact",
    "copied",
    "differences",
    "digest",
    "leaves",
    "privates",
    "states",
]

FLOAT64 = 1e-9
FLOAT32 = 1e-5


def leaves(tree: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Tensor]:
    """Returns the tensors of nested dicts, lists and tuples, by where they stand."""
    if isinstance(tree, Tensor):
        return {path: tree}
    if isinstance(tree, list | tuple | Rows):
        tree = dict(zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True))
    if not isinstance(tree, dict):
        raise TypeError(f"{path} holds {type(tree).__name__}, which is no tree of tensors")
    found: dict[tuple[str, ...], Tensor] = {}
    for key, below in tree.items():
        step = key if isinstance(key, tuple) else (str(key),)  # ``copied`` returns whole paths as keys
        found |= leaves(below, (*path, *step))
    return found


def copied(tree: Any) -> dict[tuple[str, ...], Tensor]:
    """Returns the tensors as they are now, whatever happens to the originals."""
    return {path: leaf.detach().clone() for path, leaf in leaves(tree).items()}


def differences(found: Any, expected: Any, tolerance: float | None) -> Iterator[str]:
    """Yields, in words, where two trees of tensors differ; without a tolerance every bit counts.

    The tolerance is relative to the largest number of each tensor.  Below a thousandth it shrinks no further: the
    gradient of a bias before batch normalisation is nothing but rounding.
    """
    ours, theirs = leaves(found), leaves(expected)
    for path in [*(ours.keys() - theirs.keys()), *(theirs.keys() - ours.keys())]:
        yield f"{'/'.join(path)} is in only one of the two"
    for path in [path for path in ours if path in theirs]:
        if difference := _difference(ours[path].detach(), theirs[path].detach(), tolerance):
            yield f"{'/'.join(path)} {difference}"


def _difference(leaf: Tensor, other: Tensor, tolerance: float | None) -> str:
    if (leaf.dtype, leaf.shape) != (other.dtype, other.shape):
        one, two = (f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}" for each in (leaf, other))
        return f"has the form {one}, not {two}"
    if tolerance is None:
        return "" if _bits(leaf) == _bits(other) else f"is another tensor{_largest(leaf, other)}"
    scale = float(other.abs().nan_to_num(posinf=0).max()) if other.numel() else 0.0
    allowed = tolerance * max(scale, 1e-3)
    close = torch.allclose(leaf, other, rtol=0, atol=allowed, equal_nan=True)
    return "" if close else f"is another tensor{_largest(leaf, other)}"


def _largest(leaf: Tensor, other: Tensor) -> str:
    off = (leaf.to(torch.float64) - other.to(torch.float64)).abs()
    return f": a number is off by {float(off.max()):.3g}"


def assert_exact(found: Any, expected: Any) -> None:
    """Raises unless both hold the same tensors in the same places, bit for bit."""
    _refuse(list(differences(found, expected, None)))


def assert_equal(found: Any, expected: Any, tolerance: float = FLOAT64) -> None:
    """Raises unless both hold the same tensors in the same places, to ``tolerance`` as in ``differences``."""
    _refuse(list(differences(found, expected, tolerance)))


def _refuse(found: list[str]) -> None:
    if found:
        others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise AssertionError(found[0] + others)


def privates(simulation: Simulation) -> dict[int, Any]:
    """Returns the private state of every client."""
    return simulation.store.rows(range(simulation.setting.federation.population))


def states(simulation: Simulation) -> dict[str, Any]:
    """Returns the server's state and every client's, those never selected included."""
    return {"server": simulation.server, "private": privates(simulation)}


def digest(tree: Any) -> str:
    """Returns a checksum that changes with any bit of the tensors and with their places."""
    found = hashlib.sha256()
    for path, leaf in leaves(tree).items():
        found.update(repr((path, *_bits(leaf))).encode())
    return found.hexdigest()


def _bits(leaf: Tensor) -> tuple[str, tuple[int, ...], bytes]:
    return str(leaf.dtype), tuple(leaf.shape), leaf.detach().contiguous().numpy().tobytes()
