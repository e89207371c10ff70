"""Reads LEAF's JSON files: users, their numbers of samples, and each user's samples x and labels y.

    {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}

LEAF's folders train and test are two parts of the same users' samples (or two parts of the users).  Here they are
one pool, because a run makes its own split of every client's samples; so is all_data, which LEAF splits only on
request.
Source: S. Caldas et al., "LEAF: a benchmark for federated settings", 2018, https://arxiv.org/abs/1812.01097,
https://github.com/TalwalkarLab/leaf.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from idiolect.data.dataset import Array
from idiolect.data.location import fetch_again, locate
from idiolect.data.reader_result import ReaderResult
from idiolect.data.sources import Source
from idiolect.errors import UserError

__all__ = ["UserSamples", "assemble", "read_leaf"]


class UserSamples(NamedTuple):
    """The samples of one user in one file."""

    user: str
    x: Array
    y: Array


Convert = Callable[[Any, Any], "tuple[Array, Array] | str"]  # (x, y) -> arrays, or what is wrong with them


def read_leaf(
    source: Source, root: Path, convert: Convert, shape: tuple[int, ...], dtype: type
) -> ReaderResult:
    """Reads the files one after the other; lists are turned into arrays user by user while a file is parsed.

    Args:
        convert: makes arrays of one user's x and y.
        shape, dtype: of a row of the result.
    """
    folder, advice = locate(source, root), fetch_again(source, root)
    samples: list[UserSamples] = []
    sums: dict[str, str] = {}
    for path in _files(folder, advice):
        found, digest = _read_file(path, convert, advice)
        samples += found
        sums[str(path.relative_to(folder))] = digest
    return assemble(samples, shape, dtype, sums)


def assemble(
    samples: list[UserSamples], shape: tuple[int, ...], dtype: type, sums: dict[str, str]
) -> ReaderResult:
    """Joins all samples into one pool without a test part, owners in the order of their names; empties `samples`."""
    owners = tuple(sorted({one.user for one in samples if len(one.y)}))
    number = {user: k for k, user in enumerate(owners)}
    y = np.concatenate([np.empty(0, np.int64), *(one.y for one in samples)])
    ids = [np.full(len(one.y), number[one.user], np.int64) for one in samples if len(one.y)]
    x: Array = np.empty((len(y), *shape), dtype)
    end = len(y)
    while samples:
        one = samples.pop()
        x[end - len(one.y) : end] = one.x
        end -= len(one.y)
    return ReaderResult(x, y, x[:0], y[:0], sums, np.concatenate([np.empty(0, np.int64), *ids]), owners)


def _files(folder: Path, advice: str) -> list[Path]:
    train, test = (sorted((folder / part).glob("*.json")) for part in ("train", "test"))
    if bool(train) != bool(test):
        there, absent = ("train", "test") if train else ("test", "train")
        raise UserError(f"{folder} holds LEAF's folder {there} but not {absent}; {advice}")
    return train + test or sorted((folder / "all_data").glob("*.json")) or sorted(folder.glob("*.json"))


def _read_file(path: Path, convert: Convert, advice: str) -> tuple[list[UserSamples], str]:
    def compact(found: dict[str, Any]) -> Any:
        return convert(found["x"], found["y"]) if "x" in found and "y" in found else found

    try:
        raw = path.read_bytes()
        content = json.loads(raw, object_hook=compact)
    except OSError as problem:
        raise UserError(f"cannot read {path} ({problem.strerror or problem}); {advice}") from problem
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{path} is not a whole JSON file ({problem}); {advice}") from problem
    return _samples_by_user(content, path, advice), hashlib.sha256(raw).hexdigest()


def _samples_by_user(content: Any, path: Path, advice: str) -> list[UserSamples]:
    keys = ("users", "num_samples", "user_data")
    if not isinstance(content, dict) or not all(key in content for key in keys):
        raise UserError(f"{path} is not a file of LEAF: expected an object of {', '.join(keys)}; {advice}")
    users, sizes, data = (content[key] for key in keys)
    lists = isinstance(users, list) and isinstance(sizes, list) and len(users) == len(sizes)
    if not lists or not isinstance(data, dict):
        raise UserError(f"{path}: users and num_samples are not two lists of one length; {advice}")
    samples = []
    for user, size in zip(users, sizes, strict=True):
        found = data.get(user, "is not in user_data") if isinstance(user, str) else "is no name"
        if isinstance(found, tuple) and len(found[1]) != size:
            found = f"has {len(found[1])} samples, but num_samples says {size!r}"
        if not isinstance(found, tuple):
            reason = found if isinstance(found, str) else "has no lists x and y"
            raise UserError(f"{path}: user {user!r} {reason}; {advice}")
        samples.append(UserSamples(user, *found))
    return samples
