from __future__ import annotations

import dataclasses
import gzip
import hashlib
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from idiolect.data import describe, get, load
from idiolect.data.sources import SOURCES, KnownFile
from idiolect.errors import UserError

ToIdx = Callable[..., bytes]
SPLITS = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}


@pytest.fixture
def emnist_files(to_idx: ToIdx) -> Callable[..., dict[str, bytes]]:
    """The four files of a split by name, one row per class; images as EMNIST stores them, transposed."""

    def make(split: str, first: int = 0) -> dict[str, bytes]:
        labels = np.arange(first, first + SPLITS[split])
        files = {}
        for part, seed in (("train", 0), ("test", 1)):
            upright = np.random.default_rng(seed).integers(0, 256, (len(labels), 28, 28))
            files[f"emnist-{split}-{part}-images-idx3-ubyte"] = to_idx(upright.transpose(0, 2, 1))
            files[f"emnist-{split}-{part}-labels-idx1-ubyte"] = to_idx(labels)
        return files

    return make


def write(folder: Path, files: dict[str, bytes], packed: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(raw) if packed else raw)
    return folder


@pytest.mark.parametrize("packed", [True, False])
def test_images_stand_upright(tmp_path: Path, emnist_files: Any, packed: bool) -> None:
    write(tmp_path / "emnist", emnist_files("byclass"), packed)
    dataset = load("emnist", tmp_path)
    upright = np.random.default_rng(0).integers(0, 256, (62, 28, 28))
    np.testing.assert_array_equal(dataset.train_x[:, 0], upright)
    assert dataset.train_x.flags.c_contiguous
    assert dataset.n_classes == 62
    assert dataset.train_y.tolist() == dataset.test_y.tolist() == list(range(62))
    assert len(dataset.manifest["sha256"]) == 4


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_has_its_classes_counted_from_0(tmp_path: Path, emnist_files: Any, split: str) -> None:
    write(tmp_path / "emnist", emnist_files(split, first=1 if split == "letters" else 0))
    dataset = load("emnist", tmp_path, split=split)
    assert dataset.n_classes == SPLITS[split]
    assert dataset.train_y.tolist() == list(range(SPLITS[split]))


def test_unknown_split_lists_the_official_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"emnist: split must be one of byclass, bymerge, .*; got 'byclas'"):
        load("emnist", tmp_path, split="byclas")
    with pytest.raises(UserError, match="'emnist' has no option 'spilt'; known: split"):
        load("emnist", tmp_path, spilt="byclass")


def test_absent_split_is_refused_by_file(tmp_path: Path, emnist_files: Any) -> None:
    write(tmp_path / "emnist", emnist_files("byclass"))
    with pytest.raises(
        UserError, match=r"found no emnist-letters-train-images.* datasets get emnist --data-dir"
    ):
        load("emnist", tmp_path, split="letters")


def test_letters_with_a_label_0_are_refused(tmp_path: Path, emnist_files: Any) -> None:
    write(tmp_path / "emnist", emnist_files("letters", first=0))
    with pytest.raises(UserError, match=r"train_y holds labels -1..24"):
        load("emnist", tmp_path, split="letters")


def test_truncated_file_is_refused_by_name(tmp_path: Path, emnist_files: Any) -> None:
    folder = write(tmp_path / "emnist", emnist_files("byclass"))
    broken = folder / "emnist-byclass-test-images-idx3-ubyte.gz"
    broken.write_bytes(broken.read_bytes()[:-30])
    with pytest.raises(UserError, match=rf"{broken} is not a whole gzip file .* datasets get emnist"):
        load("emnist", tmp_path)


@pytest.fixture
def emnist_home(emnist_files: Any, home_of: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A small archive in the place of NIST's, and a catalogue that knows its checksum."""

    def make(leave_out: str = "", spoil: Callable[[bytes], bytes] = bytes) -> Any:
        packed = BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("../outside", b"harm")
            archive.writestr("gzip/emnist-byclass-mapping.txt", b"0 48")
            for split in SPLITS:
                for name, raw in emnist_files(split, first=1 if split == "letters" else 0).items():
                    if name != leave_out:
                        archive.writestr(f"gzip/{name}.gz", gzip.compress(raw))
        raw = packed.getvalue()
        known = KnownFile("gzip.zip", hashlib.md5(spoil(raw)).hexdigest())
        monkeypatch.setitem(SOURCES, "emnist", dataclasses.replace(SOURCES["emnist"], archive=known))
        return home_of({"gzip.zip": spoil(raw)})

    return make


def test_get_brings_all_splits_and_nothing_else(tmp_path: Path, emnist_home: Any) -> None:
    home = emnist_home()
    folder = get("emnist", tmp_path / "data", opener=home)
    assert len(list(folder.iterdir())) == 24
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    for split, classes in SPLITS.items():
        assert load("emnist", tmp_path / "data", split=split).n_classes == classes
    assert next(row for row in describe(tmp_path / "data") if row.name == "emnist").status == "present"
    home.asked.clear()
    get("emnist", tmp_path / "data", opener=home)
    assert home.asked == []
    (folder / "emnist-digits-test-labels-idx1-ubyte.gz").unlink()
    get("emnist", tmp_path / "data", opener=home)
    assert load("emnist", tmp_path / "data", split="digits").n_classes == 10


def test_get_of_an_archive_without_a_file_is_refused_and_leaves_nothing(
    tmp_path: Path, emnist_home: Any
) -> None:
    home = emnist_home(leave_out="emnist-digits-test-labels-idx1-ubyte")
    with pytest.raises(
        UserError, match=r"gzip.zip is not a whole archive \(it has no plain file emnist-digits"
    ):
        get("emnist", tmp_path, opener=home)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spoil", [lambda raw: raw[:-40], lambda raw: b"<html>", lambda raw: b""])
def test_get_of_a_broken_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, emnist_home: Any, spoil: Callable[[bytes], bytes]
) -> None:
    home = emnist_home(spoil=spoil)
    with pytest.raises(UserError, match=r"gzip.zip is not a whole archive"):
        get("emnist", tmp_path, opener=home)
    assert list(tmp_path.iterdir()) == []
