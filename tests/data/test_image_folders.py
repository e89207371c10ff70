"""CINIC-10 and Tiny ImageNet: folders of small images."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from idiolect.data import get, load
from idiolect.data.sources import SOURCES, KnownFile
from idiolect.errors import UserError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
WNIDS = ("n02", "n01", "n03")


def save(path: Path, pixels: np.ndarray[Any, Any], **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(pixels.astype(np.uint8)).save(path, **options)


def noise(seed: int, side: int = 32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3))


@pytest.fixture
def cinic(tmp_path: Path) -> Path:
    folder = tmp_path / "cinic-10"
    for p, part in enumerate(("train", "valid", "test")):
        for c, name in enumerate(CLASSES):
            for i in range(2):
                save(folder / part / name / f"n0-{i}.png", noise(100 * p + 10 * i + c))
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Three classes; every image has one colour, which JPEG keeps: 60 for the first wnid, then 120, 180."""
    folder = tmp_path / "tiny-imagenet-200"
    for c, wnid in enumerate(WNIDS):
        for i in range(2):
            colour = np.full((64, 64, 3), 60 * (c + 1))
            save(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", colour, quality=95)
    (folder / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    lines = []
    for i, wnid in enumerate(reversed(WNIDS)):
        grey = np.full((64, 64), 60 * (WNIDS.index(wnid) + 1))
        save(folder / "val" / "images" / f"val_{i}.JPEG", grey, quality=95)
        lines.append(f"val_{i}.JPEG\t{wnid}\t0\t0\t63\t63\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    return folder


def test_cinic_reads_train_and_test_in_the_order_of_the_classes(cinic: Path) -> None:
    dataset = load("cinic-10", cinic.parent)
    assert dataset.train_x.shape == dataset.test_x.shape == (20, 3, 32, 32)
    assert dataset.train_y.tolist() == dataset.test_y.tolist() == [c for c in range(10) for _ in range(2)]
    for c in range(10):
        np.testing.assert_array_equal(dataset.train_x[2 * c + 1], noise(10 + c).transpose(2, 0, 1))
        np.testing.assert_array_equal(dataset.test_x[2 * c], noise(200 + c).transpose(2, 0, 1))
    assert dataset.mean == (0.4914, 0.4822, 0.4465)
    assert dataset.n_classes == 10


def test_checksum_of_a_part_changes_with_its_files_alone(cinic: Path) -> None:
    before = load("cinic-10", cinic.parent).manifest["sha256"]
    save(cinic / "train" / "dog" / "n0-1.png", noise(7))
    after = load("cinic-10", cinic.parent).manifest["sha256"]
    assert set(before) == {"train", "test"}
    assert before["test"] == after["test"] and before["train"] != after["train"]


def test_folder_can_be_given_itself_and_validation_is_not_needed(cinic: Path) -> None:
    for path in sorted((cinic / "valid").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert len(load("cinic-10", cinic).train_y) == 20


def test_tiny_takes_classes_from_wnids_and_labels_from_the_annotations(tiny: Path) -> None:
    dataset = load("tiny-imagenet", tiny.parent)
    assert dataset.train_x.shape == (6, 3, 64, 64) and dataset.test_x.shape == (3, 3, 64, 64)
    assert dataset.n_classes == 200
    for x, y in ((dataset.train_x, dataset.train_y), (dataset.test_x, dataset.test_y)):
        np.testing.assert_allclose(x.mean(axis=(1, 2, 3)), 60 * (y + 1), atol=1.5)
    assert dataset.train_y.tolist() == [0, 0, 1, 1, 2, 2]
    assert dataset.test_y.tolist() == [2, 1, 0]
    assert set(dataset.manifest["sha256"]) == {"train", "val"}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-60]), "is not a whole image"),
        (lambda path: path.write_bytes(b"<html>404</html>"), "is not a whole image"),
        (lambda path: path.write_bytes(b""), "is not a whole image"),
        (lambda path: save(path, noise(0, 31)), "is an image of 31x31, expected"),
    ],
)
@pytest.mark.parametrize("name", ["cinic", "tiny"])
def test_broken_image_is_refused_by_name(
    name: str, request: pytest.FixtureRequest, spoil: Callable[[Path], Any], message: str
) -> None:
    folder = request.getfixturevalue(name)
    path = sorted(folder.glob("train/*/**/*.*"))[1]
    spoil(path)
    dataset = {"cinic": "cinic-10", "tiny": "tiny-imagenet"}[name]
    with pytest.raises(UserError, match=message) as caught:
        load(dataset, folder.parent)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert f"remove {folder} and get it anew with `idiolect datasets get {dataset}" in str(caught.value)


def test_half_copied_cinic_is_refused_by_folder(cinic: Path) -> None:
    (cinic / "test" / "ship" / "n0-1.png").unlink()
    with pytest.raises(
        UserError, match=r"test/ship holds 1 images but .*test/airplane holds 2; expected as many"
    ):
        load("cinic-10", cinic.parent)
    (cinic / "test" / "ship" / "n0-0.png").unlink()
    with pytest.raises(UserError, match=r"found no \*.png in .*test/ship"):
        load("cinic-10", cinic.parent)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("wnids.txt", "", "names 0 classes, expected 200 different ones"),
        ("wnids.txt", "n01 n02 n02 n03", "names 4 classes, expected 200 different"),
        ("wnids.txt", "n01 n02 n03 n04", r"found no \*.JPEG in .*n04"),
        ("wnids.txt", "n01\nn02\n", "line 1: expected an image and a wnid of wnids.txt"),
        ("wnids.txt", "n01 é", "wnids.txt is not a text file"),
        ("val/val_annotations.txt", "val_0.JPEG\tn01\n", r"do not name the same images \(val_1.JPEG\)"),
        ("val/val_annotations.txt", "../../x.JPEG\tn01\n", "line 1: expected an image"),
        ("val/val_annotations.txt", "val_0.JPEG\n", "line 1: expected an image and a wnid"),
    ],
)
def test_wrong_list_of_tiny_is_refused(tiny: Path, file: str, text: str, message: str) -> None:
    (tiny / file).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        load("tiny-imagenet", tiny.parent)


@pytest.mark.parametrize(
    ("name", "where"), [("cinic-10", "cinic-10"), ("tiny-imagenet", "tiny-imagenet-200")]
)
def test_absent_folder_says_what_was_sought_and_how_to_get_it(tmp_path: Path, name: str, where: str) -> None:
    with pytest.raises(
        UserError,
        match=rf"{name}': found no .*train/.* in {tmp_path / where}; get it with `idiolect datasets",
    ):
        load(name, tmp_path)


# ---- download


def packed(folder: Path, kind: str, prefix: str) -> bytes:
    raw = io.BytesIO()
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    if kind == "zip":
        with zipfile.ZipFile(raw, "w") as archive:
            archive.writestr("../outside.JPEG", b"harm")
            for path in files:
                archive.write(path, f"{prefix}{path.relative_to(folder)}")
    else:
        with tarfile.open(fileobj=raw, mode="w:gz") as tar:
            for path in files:
                tar.add(path, f"{prefix}{path.relative_to(folder)}")
            link = tarfile.TarInfo("train/dog/link.png")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
            tar.addfile(link)
    return raw.getvalue()


@pytest.fixture
def home(request: pytest.FixtureRequest, home_of: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A small archive in a dataset's place, and a catalogue that knows its checksum."""

    def make(name: str, raw: bytes) -> Any:
        source = SOURCES[name]
        assert source.archive is not None
        known = KnownFile(source.archive.name, hashlib.md5(raw).hexdigest())
        monkeypatch.setitem(SOURCES, name, dataclasses.replace(source, archive=known))
        return home_of({known.name: raw})

    return make


CASES = [("cinic-10", "cinic", "tar", ""), ("cinic-10", "cinic", "tar", "./")]
CASES += [("tiny-imagenet", "tiny", "zip", "tiny-imagenet-200/")]


@pytest.mark.parametrize(("name", "written", "kind", "prefix"), CASES)
def test_get_unpacks_what_load_reads(
    name: str, written: str, kind: str, prefix: str, request: pytest.FixtureRequest, tmp_path: Path, home: Any
) -> None:
    folder = request.getfixturevalue(written)
    site = home(name, packed(folder, kind, prefix))
    got = get(name, tmp_path / "new", opener=site)
    assert {str(p.relative_to(got)) for p in got.rglob("*")} == {
        str(p.relative_to(folder)) for p in folder.rglob("*")
    }
    assert [path.name for path in (tmp_path / "new").iterdir()] == [folder.name]
    np.testing.assert_array_equal(load(name, tmp_path / "new").train_x, load(name, tmp_path).train_x)
    site.asked.clear()
    get(name, tmp_path / "new", opener=site)
    assert site.asked == []


def test_get_replaces_a_folder_that_is_not_whole(cinic: Path, tmp_path: Path, home: Any) -> None:
    site = home("cinic-10", packed(cinic, "tar", ""))
    leftover = tmp_path / "new" / "cinic-10" / "train" / "dog" / "left.png"
    save(leftover, noise(3))
    get("cinic-10", tmp_path / "new", opener=site)
    assert not leftover.exists()
    assert len(load("cinic-10", tmp_path / "new").train_y) == 20


@pytest.mark.parametrize("spoil", [lambda raw: raw[: len(raw) // 2], lambda raw: b"<html>"])
def test_get_of_a_broken_archive_leaves_what_was_there(
    cinic: Path, tmp_path: Path, home: Any, spoil: Callable[[bytes], bytes]
) -> None:
    site = home("cinic-10", spoil(packed(cinic, "tar", "")))
    kept = tmp_path / "new" / "cinic-10" / "train" / "dog" / "left.png"
    save(kept, noise(3))
    with pytest.raises(UserError, match=r"CINIC-10.tar.gz is not a whole archive"):
        get("cinic-10", tmp_path / "new", opener=site)
    assert [path for path in (tmp_path / "new").rglob("*") if path.is_file()] == [kept]


def test_get_of_another_archive_is_refused(tmp_path: Path, home: Any) -> None:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr("readme.txt", b"nothing of it")
    with pytest.raises(UserError, match="it holds nothing of the dataset"):
        get("tiny-imagenet", tmp_path, opener=home("tiny-imagenet", raw.getvalue()))
    assert list(tmp_path.iterdir()) == []
