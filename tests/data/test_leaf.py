"""FEMNIST and Shakespeare as LEAF writes them."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from idiolect.data import describe, load
from idiolect.errors import UserError

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
LINE = "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer The slings"


def leaf_file(samples: dict[str, dict[str, list[Any]]], **more: Any) -> dict[str, Any]:
    sizes = [len(data["y"]) for data in samples.values()]
    return {"users": list(samples), "num_samples": sizes, "user_data": samples} | more


def writer(n: int, seed: int) -> dict[str, list[Any]]:
    random = np.random.default_rng(seed)
    return {
        "x": (random.integers(0, 256, (n, 784)) / 255).tolist(),
        "y": random.integers(0, 62, n).tolist(),
    }


def speaker(n: int, start: int = 0) -> dict[str, list[Any]]:
    text = (LINE * 3)[start : start + n + 80]
    return {"x": [text[i : i + 80] for i in range(n)], "y": [text[i + 80] for i in range(n)]}


def write(folder: Path, **files: Any) -> Path:
    """`part__name` becomes part/name.json; a dictionary is written as JSON, bytes as they are."""
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


WRITERS = {"f1_05": writer(3, 0), "f0_31": writer(2, 1), "f0_02": writer(4, 2)}


def rows_by_owner(dataset: Any) -> dict[str, np.ndarray[Any, Any]]:
    owners = dataset.manifest["owners"]
    return {owner: dataset.train_x[dataset.train_ids == k] for k, owner in enumerate(owners)}


@pytest.mark.parametrize("where", ["", "all_data__"])
def test_femnist_keeps_images_labels_and_writers(tmp_path: Path, where: str) -> None:
    first, second = ({k: WRITERS[k] for k in keys} for keys in (("f1_05", "f0_31"), ("f0_02",)))
    files = {f"{where}all_data_0": leaf_file(first), f"{where}all_data_1": leaf_file(second)}
    write(tmp_path / "femnist", **files)
    dataset = load("femnist", tmp_path)
    assert dataset.manifest["owners"] == ["f0_02", "f0_31", "f1_05"]
    found = rows_by_owner(dataset)
    for name, data in WRITERS.items():
        expected = np.rint(np.array(data["x"]) * 255).astype(np.uint8)
        np.testing.assert_array_equal(found[name].reshape(-1, 784), expected)
        number = dataset.manifest["owners"].index(name)
        assert dataset.train_y[dataset.train_ids == number].tolist() == data["y"]
    assert dataset.train_x.dtype == np.uint8
    assert dataset.shape == (1, 28, 28)
    assert (dataset.n_classes, dataset.vocabulary, len(dataset.test_y)) == (62, None, 0)
    assert dataset.manifest["counts"] == {"train": 9, "test": 0}
    assert len(dataset.manifest["sha256"]) == 2
    assert json.loads(json.dumps(dataset.manifest)) == dataset.manifest


def test_train_and_test_are_one_pool_and_win_over_all_data(tmp_path: Path) -> None:
    one, other = writer(3, 5), writer(2, 6)
    write(
        tmp_path / "femnist",
        train__a=leaf_file({"f0": one}),
        test__a=leaf_file({"f0": other, "f1": writer(1, 7)}),
        all_data__a=leaf_file({"f9": writer(9, 8)}),
    )
    dataset = load("femnist", tmp_path)
    assert dataset.manifest["owners"] == ["f0", "f1"]
    assert np.bincount(dataset.train_ids).tolist() == [5, 1]
    assert dataset.train_y[dataset.train_ids == 0].tolist() == one["y"] + other["y"]
    assert set(dataset.manifest["sha256"]) == {"train/a.json", "test/a.json"}


@pytest.mark.parametrize(("there", "absent"), [("train", "test"), ("test", "train")])
def test_half_of_a_split_is_refused(tmp_path: Path, there: str, absent: str) -> None:
    write(tmp_path / "femnist", **{f"{there}__a": leaf_file(WRITERS), "all_data__b": leaf_file(WRITERS)})
    with pytest.raises(UserError, match=f"holds LEAF's folder {there} but not {absent}; make it with LEAF"):
        load("femnist", tmp_path)


@pytest.mark.parametrize("name", ["femnist", "shakespeare-leaf"])
def test_absent_data_say_how_they_are_made_and_where_they_go(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"preprocess.sh -s niid --sf 1.0 -k 0 -t sample\)") as caught:
        load(name, tmp_path)
    assert str(caught.value).endswith(f"put its folders train and test, or all_data, into {tmp_path / name}")
    assert "\n" not in str(caught.value)
    assert next(row for row in describe(tmp_path) if row.name == name).status == "missing"


GOOD = json.dumps(leaf_file(WRITERS)).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD[:-1], "is not a whole JSON file"),
        (GOOD[: len(GOOD) // 2], "is not a whole JSON file"),
        (b"", "is not a whole JSON file"),
        (b"\x1f\x8b\x08\x00", "is not a whole JSON file"),
        (b"[" * 100_000, "is not a whole JSON file"),
        ([1, 2], "is not a file of LEAF: expected an object of users, num_samples, user_data"),
        ({"users": []}, "is not a file of LEAF"),
        (leaf_file(WRITERS, users=["f1_05"]), "not two lists of one length"),
        (leaf_file(WRITERS, user_data={}), "user 'f1_05' is not in user_data"),
        (leaf_file(WRITERS, num_samples=[3, 9, 4]), "user 'f0_31' has 2 samples, but num_samples says 9"),
        (leaf_file({"f0": {"x": [[0.5] * 783], "y": [1]}}), r"user 'f0' has x of shape \[1, 783\]"),
        (leaf_file({"f0": {"x": [[0.5] * 784] * 2, "y": [1]}}), r"y of shape \[1\], expected \[N, 784\] and"),
        (leaf_file({"f0": {"x": [[0.5] * 784, [0.5]], "y": [1, 1]}}), "is no list of numbers"),
        (leaf_file({"f0": {"x": [["a"] * 784], "y": [1]}}), "is no list of numbers"),
        (leaf_file({"f0": {"x": [[1.5] * 784], "y": [1]}}), "has pixels outside 0..1"),
        (leaf_file({"f0": {"x": [[float("nan")] * 784], "y": [1]}}), "has pixels outside 0..1"),
        (leaf_file({"f0": {"x": [[0.5] * 784], "y": [62]}}), "no whole numbers in 0..61"),
        (leaf_file({"f0": {"x": [[0.5] * 784], "y": [0.5]}}), "no whole numbers in 0..61"),
        (leaf_file({"f0": {"x": [[0.5] * 784], "y": ["a"]}}), "no whole numbers in 0..61"),
        ({"users": ["f0"], "num_samples": [1], "user_data": {"f0": {"y": [1]}}}, "has no lists x and y"),
        ({"users": [["f0"]], "num_samples": [1], "user_data": {}}, "is no name"),
    ],
)
def test_broken_file_is_refused_by_name(tmp_path: Path, content: Any, message: str) -> None:
    folder = write(tmp_path / "femnist", all_data_0=leaf_file({"f8": writer(1, 0)}), all_data_1=content)
    with pytest.raises(UserError, match=message) as caught:
        load("femnist", tmp_path)
    assert str(folder / "all_data_1.json") in str(caught.value)
    assert "make it with LEAF" in str(caught.value) and "\n" not in str(caught.value)


def test_pixels_written_with_few_digits_are_the_nearest_bytes(tmp_path: Path) -> None:
    levels = np.arange(784) % 256
    row = {"x": [np.round(levels / 255, 3).tolist()], "y": [7]}
    write(tmp_path / "femnist", all_data=leaf_file({"f0": row}))
    np.testing.assert_array_equal(load("femnist", tmp_path).train_x.ravel(), levels)


def test_writer_without_samples_is_no_owner(tmp_path: Path) -> None:
    write(tmp_path / "femnist", all_data=leaf_file({"f0": {"x": [], "y": []}, "f1": writer(2, 0)}))
    dataset = load("femnist", tmp_path)
    assert dataset.manifest["owners"] == ["f1"]
    assert dataset.train_ids is not None and dataset.train_ids.tolist() == [0, 0]


def test_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    """Of six files, lists of numbers are alive for one writer, and text for one file, at a time."""
    users = {f"f{k}_{u}": writer(40, 100 * k + u) for k in range(6) for u in range(4)}
    for k in range(6):
        part = {name: data for name, data in users.items() if name.startswith(f"f{k}_")}
        write(tmp_path / "femnist", **{f"all_data_{k}": leaf_file(part)})
    del users
    text = max(path.stat().st_size for path in (tmp_path / "femnist").iterdir())
    load("femnist", tmp_path)
    tracemalloc.start()
    dataset = load("femnist", tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    lists_of_a_writer = 40 * 784 * (8 + 24 + 16)
    assert peak < 2 * dataset.train_x.nbytes + 2 * text + 2 * lists_of_a_writer


# ---- Shakespeare


def test_shakespeare_becomes_the_tokens_of_leaf(tmp_path: Path) -> None:
    roles = {"HAMLET": speaker(5), "A_GHOST": speaker(3, start=9)}
    write(tmp_path / "shakespeare-leaf", all_data=leaf_file(roles, hierarchies=["H", "H"]))
    dataset = load("shakespeare-leaf", tmp_path)
    assert dataset.train_x.dtype == np.int64 and dataset.train_x.shape == (8, 80)
    assert (dataset.shape, dataset.vocabulary, dataset.n_classes) == ((1, 1, 80), 81, 81)
    assert dataset.manifest["owners"] == ["A_GHOST", "HAMLET"]
    for name, rows in rows_by_owner(dataset).items():
        assert ["".join(LETTERS[t] for t in row) for row in rows] == roles[name]["x"]
        labels = dataset.train_y[dataset.train_ids == dataset.manifest["owners"].index(name)]
        assert [LETTERS[t] for t in labels] == roles[name]["y"]


@pytest.mark.parametrize("strange", ["$", "\t", "\x7f", "é", "—", "\U0001d504", "\ud800"])
def test_character_that_leaf_does_not_know_is_token_80(tmp_path: Path, strange: str) -> None:
    role = {"x": ["a" * 79 + strange, "a" * 80], "y": ["}", strange]}
    write(tmp_path / "shakespeare-leaf", all_data=leaf_file({"R": role}))
    dataset = load("shakespeare-leaf", tmp_path)
    assert dataset.train_x[0, 79] == 80 and (dataset.train_x[0, :79] == LETTERS.index("a")).all()
    assert dataset.train_y.tolist() == [79, 80]


@pytest.mark.parametrize(
    "role",
    [
        {"x": ["a" * 79], "y": ["b"]},
        {"x": ["a" * 80], "y": ["bb"]},
        {"x": ["a" * 80, "a" * 80], "y": ["b"]},
        {"x": [80], "y": ["b"]},
        {"x": "a" * 80, "y": "b"},
    ],
)
def test_samples_of_another_length_are_refused_by_role(tmp_path: Path, role: dict[str, Any]) -> None:
    write(tmp_path / "shakespeare-leaf", all_data=leaf_file({"LEAR": role}))
    with pytest.raises(UserError, match="user 'LEAR' has x and y that are not as many strings of 80"):
        load("shakespeare-leaf", tmp_path)


@pytest.mark.parametrize("spoil", [lambda raw: raw[:-9], lambda raw: b"To be, or not to be"])
def test_broken_shakespeare_is_refused(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    raw = json.dumps(leaf_file({"LEAR": speaker(4)})).encode()
    write(tmp_path / "shakespeare-leaf", all_data=spoil(raw))
    with pytest.raises(UserError, match=r"all_data.json is not a whole JSON file"):
        load("shakespeare-leaf", tmp_path)
