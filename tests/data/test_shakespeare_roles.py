"""Windows over the speeches of each role."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from idiolect.data import describe, load
from idiolect.errors import UserError

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
PLAY = {
    "The Tempest :: PROSPERO": [
        "Be collected:\nNo more amazement: tell your piteous heart",
        "There's no harm done.",
        "No harm. I have done nothing but in care of thee",
    ],
    "The Tempest :: MIRANDA": [
        "O, woe the day! O, the cry did knock Against my very heart. Poor souls, they perish'd."
    ],
    "The Tempest :: ARIEL": ["All hail, great master!"],
}


def write(folder: Path, content: Any) -> Path:
    path = folder / "shakespeare_roles.json"
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    return path


def roles(user_data: dict[str, Any]) -> dict[str, Any]:
    return {"users": list(user_data), "user_data": user_data}


def text_of(tokens: np.ndarray[Any, Any]) -> str:
    return "".join(LETTERS[token] for token in tokens)


@pytest.mark.parametrize("stride", [1, 3, 1000])
def test_windows_slide_over_the_joined_speeches(tmp_path: Path, stride: int) -> None:
    write(tmp_path, roles(PLAY))
    dataset = load("shakespeare-roles", tmp_path, stride=stride)
    owners = dataset.manifest["owners"]
    assert owners == ["The Tempest :: MIRANDA", "The Tempest :: PROSPERO"]
    for number, owner in enumerate(owners):
        line = "\n".join(PLAY[owner])
        mine = dataset.train_ids == number
        starts = range(0, len(line) - 80, stride)
        assert [text_of(row) for row in dataset.train_x[mine]] == [line[s : s + 80] for s in starts]
        assert text_of(dataset.train_y[mine]) == "".join(line[s + 80] for s in starts)


def test_tokens_are_whole_numbers_of_81_and_short_roles_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, roles(PLAY))
    dataset = load("shakespeare-roles", tmp_path)
    assert dataset.train_x.dtype == np.int64 and dataset.train_x.shape[1:] == (80,)
    assert (dataset.shape, dataset.vocabulary, dataset.n_classes) == ((1, 1, 80), 81, 81)
    assert len(dataset.test_y) == 0
    assert dataset.manifest["left_out"] == {"roles with fewer than 81 characters": 1}
    assert dataset.manifest["sha256"] == {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}


@pytest.mark.parametrize("length", [80, 81, 82])
def test_role_needs_81_characters(tmp_path: Path, length: int) -> None:
    write(tmp_path, roles({"A": ["x" * length], "B": ["y" * 100]}))
    dataset = load("shakespeare-roles", tmp_path)
    assert ("A" in dataset.manifest["owners"]) == (length > 80)
    assert len(dataset.train_y) == max(length - 80, 0) + 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(roles(PLAY))[:-20], "is not a whole JSON file"),
        ("", "is not a whole JSON file"),
        ([], "expected an object of users and user_data"),
        ({"users": ["A"], "user_data": {}}, "naming the same roles"),
        ({"user_data": {"A": ["x"]}}, "expected an object of users and user_data"),
        (roles({"A": "x" * 90}), "role 'A' has no list of speeches"),
        (roles({"A": ["x" * 90, 3]}), "role 'A' has no list of speeches"),
    ],
)
def test_broken_file_is_refused_by_name(tmp_path: Path, content: Any, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(UserError, match=message) as caught:
        load("shakespeare-roles", tmp_path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("stride", [0, -1, 1.5, True, "2"])
def test_wrong_stride_is_refused(tmp_path: Path, stride: Any) -> None:
    with pytest.raises(UserError, match=f"stride must be a whole number of at least 1, not {stride!r}"):
        load("shakespeare-roles", tmp_path, stride=stride)


def test_absent_file_says_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"found no shakespeare_roles.json in .*put shakespeare_roles.json"
    ) as caught:
        load("shakespeare-roles", tmp_path)
    assert str(caught.value).endswith(f"into {tmp_path}")
    row = {row.name: row for row in describe(tmp_path)}["shakespeare-roles"]
    assert (row.status, row.where) == ("missing", str(tmp_path))
