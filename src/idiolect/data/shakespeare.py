"""Reads Shakespeare's roles for next-character prediction: LEAF's samples, or windows over the speeches.

    x = c_t, ..., c_{t+79};   y = c_{t+80}          tokens of `idiolect.data.character_tokens`

Source: S. Caldas et al., "LEAF: a benchmark for federated settings", 2018, https://arxiv.org/abs/1812.01097,
https://github.com/TalwalkarLab/leaf, data/shakespeare.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from idiolect.data.character_tokens import LENGTH, tokens
from idiolect.data.dataset import Array
from idiolect.data.leaf import UserSamples, assemble, read_leaf
from idiolect.data.location import fetch_again, locate
from idiolect.data.reader_result import ReaderResult
from idiolect.data.sources import Source
from idiolect.errors import UserError

__all__ = ["read_shakespeare_leaf", "read_shakespeare_roles"]


def read_shakespeare_leaf(source: Source, root: Path) -> ReaderResult:
    """Reads all samples of all roles as LEAF made them: x is a string of 80 characters, y the one that follows."""
    return read_leaf(source, root, _convert, (LENGTH,), np.int64)


def _convert(x: Any, y: Any) -> tuple[Array, Array] | str:
    if not _are_strings(x, LENGTH) or not _are_strings(y, 1) or len(x) != len(y):
        return f"has x and y that are not as many strings of {LENGTH} characters and of one"
    return tokens("".join(x)).reshape(-1, LENGTH), tokens("".join(y)).astype(np.int64)


def _are_strings(values: Any, length: int) -> bool:
    return isinstance(values, list) and all(isinstance(v, str) and len(v) == length for v in values)


def read_shakespeare_roles(source: Source, root: Path, *, stride: int = 1) -> ReaderResult:
    """Reads windows over the speeches of each role, which are joined by line breaks in their order.

    Args:
        stride: characters between the beginnings of two windows; 1 gives all 4.2 million, as LEAF does.

    A role with fewer than 81 characters has no window and is left out.
    """
    if isinstance(stride, bool) or not isinstance(stride, int) or stride < 1:
        raise UserError(f"dataset {source.name}: stride must be a whole number of at least 1, not {stride!r}")
    path, advice = locate(source, root) / source.needs[0], fetch_again(source, root)
    try:
        raw = path.read_bytes()
        content = json.loads(raw)
    except OSError as problem:
        raise UserError(f"cannot read {path} ({problem.strerror or problem}); {advice}") from problem
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{path} is not a whole JSON file ({problem}); {advice}") from problem
    samples = [
        _windows(role, speeches, stride) for role, speeches in _speeches(content, path, advice).items()
    ]
    short = sum(len(one.y) == 0 for one in samples)
    found = assemble(samples, (LENGTH,), np.int64, {path.name: hashlib.sha256(raw).hexdigest()})
    return found._replace(left_out={f"roles with fewer than {LENGTH + 1} characters": short} if short else {})


def _speeches(content: Any, path: Path, advice: str) -> dict[str, list[str]]:
    users, data = (content.get(k) if isinstance(content, dict) else None for k in ("users", "user_data"))
    if not isinstance(users, list) or not isinstance(data, dict) or set(map(str, users)) != set(data):
        raise UserError(f"{path}: expected an object of users and user_data, naming the same roles; {advice}")
    for role, speeches in data.items():
        if not isinstance(speeches, list) or not all(isinstance(speech, str) for speech in speeches):
            raise UserError(f"{path}: role {role!r} has no list of speeches; {advice}")
    return data


def _windows(role: str, speeches: list[str], stride: int) -> UserSamples:
    line = tokens("\n".join(speeches))
    seen = (
        sliding_window_view(line, LENGTH + 1)[::stride] if len(line) > LENGTH else np.empty((0, LENGTH + 1))
    )
    return UserSamples(role, seen[:, :LENGTH], seen[:, LENGTH].astype(np.int64))
