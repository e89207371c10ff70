from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from idiolect.data import DEFAULT, catalogue, describe, from_arrays, is_registered, load, names, register
from idiolect.data.location import data_folder
from idiolect.errors import UserError

WriteMnist = Callable[..., Path]


def test_names_are_the_promised_ones_with_the_default_first() -> None:
    classic = ("fashion-mnist-12k", "fashion-mnist", "mnist", "cifar10", "cifar100")
    federated = ("emnist", "femnist", "shakespeare-leaf", "shakespeare-roles", "cinic-10", "tiny-imagenet")
    assert names() == (*classic, *federated, "flickr-aes", "synthetic")
    assert names()[0] == DEFAULT


@pytest.mark.parametrize(
    "look_up", [lambda: is_registered("mine"), lambda: "mine" in [d.name for d in describe()]]
)
def test_datasets_of_plugins_are_known_before_they_are_loaded(
    look_up: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = from_arrays([1, 2], [0, 1], name="mine")
    monkeypatch.setattr(catalogue, "REGISTERED", {})
    monkeypatch.setattr(catalogue, "load_plugins", lambda: register("mine", dataset))
    assert look_up()


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_load_finds_files_below_or_in_the_folder(
    tmp_path: Path, write_mnist: WriteMnist, name: str, packed: bool, inside: bool
) -> None:
    folder = write_mnist(tmp_path / name, packed=packed)
    dataset = load(name, folder if inside else tmp_path)
    assert dataset.name == name
    assert dataset.train_x.shape == (20, 1, 28, 28)
    assert np.bincount(dataset.test_y).tolist() == [2] * 10
    assert set(dataset.manifest["sha256"]) == {path.name for path in folder.iterdir()}
    assert json.loads(json.dumps(dataset.manifest)) == dataset.manifest


def test_load_never_reads_mnist_as_fashion_mnist(tmp_path: Path, write_mnist: WriteMnist) -> None:
    folder = write_mnist(tmp_path / "mnist")
    with pytest.raises(UserError, match="'fashion-mnist': found no"):
        load("fashion-mnist", folder)


def test_load_missing_dataset_says_where_and_how(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load("mnist", tmp_path)
    assert f"in {tmp_path}/mnist;" in str(caught.value)
    assert f"`idiolect datasets get mnist --data-dir {tmp_path}`" in str(caught.value)


def test_load_incomplete_dataset_names_the_missing_file(tmp_path: Path, write_mnist: WriteMnist) -> None:
    (write_mnist(tmp_path / "mnist") / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match=r"'mnist': is missing t10k-labels-idx1-ubyte\.gz in"):
        load("mnist", tmp_path)


def test_load_broken_file_tells_how_to_get_it_again(tmp_path: Path, write_mnist: WriteMnist) -> None:
    broken = write_mnist(tmp_path / "mnist") / "train-images-idx3-ubyte.gz"
    broken.write_bytes(broken.read_bytes()[:-20])
    with pytest.raises(UserError, match=rf"{broken} .* datasets get mnist --data-dir {tmp_path}"):
        load("mnist", tmp_path)


def test_load_refuses_a_sound_file_that_is_not_the_published_one(
    tmp_path: Path, write_mnist: WriteMnist
) -> None:
    """Other labels, packed and parsed without a fault; unpacked files have no known checksum."""
    folder = write_mnist(tmp_path / "mnist")
    path = folder / "train-labels-idx1-ubyte.gz"
    raw = gzip.decompress(path.read_bytes())
    other = raw[:8] + raw[:7:-1]
    path.write_bytes(gzip.compress(other))
    with pytest.raises(UserError, match=rf"{path} is not the file that mnist is published as: expected md5"):
        load("mnist", tmp_path)
    path.unlink()
    path.with_suffix("").write_bytes(other)
    assert load("mnist", tmp_path).train_y.tolist() == list(other[8:])


def test_load_takes_files_packed_otherwise_that_their_owner_vouches_for_and_records_it(
    tmp_path: Path, write_mnist: WriteMnist
) -> None:
    folder = write_mnist(tmp_path / "mnist")
    published = load("mnist", tmp_path)
    path = folder / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()), 1, mtime=7))
    with pytest.raises(UserError, match=r"vouch for them with 'md5sum \* > MD5SUMS' in their folder"):
        load("mnist", tmp_path)
    sums = {one.name: hashlib.md5(one.read_bytes()).hexdigest() for one in folder.iterdir()}
    (folder / "MD5SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    found = load("mnist", tmp_path)
    assert found.manifest["repackaged"] == [path.name] and "repackaged" not in published.manifest
    assert found.train_y.tolist() == published.train_y.tolist()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="is not the file that mnist is published as"):
        load("mnist", tmp_path)


def test_load_unknown_name_suggests_the_near_one() -> None:
    with pytest.raises(UserError, match="unknown dataset 'fashion_mnist'; did you mean fashion-mnist"):
        load("fashion_mnist")


def test_load_passes_options_to_synthetic() -> None:
    assert load("synthetic", n_clients=2, samples_per_client=3).train_x.shape == (6, 1, 1, 60)


def test_load_unknown_option_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'synthetic' has no option 'skwe'; known: n_clients, .*skew, seed"):
        load("synthetic", skwe=1)
    for name in ("mnist", DEFAULT):
        with pytest.raises(UserError, match=f"'{name}' has no option 'skew'; it takes none"):
            load(name, tmp_path, skew=1)


def test_data_folder_prefers_argument_then_variable_then_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IDIOLECT_DATA", str(tmp_path / "variable"))
    assert data_folder(tmp_path / "argument") == tmp_path / "argument"
    assert data_folder() == tmp_path / "variable"
    monkeypatch.delenv("IDIOLECT_DATA")
    assert data_folder() == tmp_path / "home" / ".cache" / "idiolect"
    assert data_folder("~/mine") == tmp_path / "home" / "mine"


def test_describe_tells_present_from_missing(tmp_path: Path, write_mnist: WriteMnist) -> None:
    write_mnist(tmp_path / "mnist")
    rows = {row.name: row for row in describe(tmp_path)}
    assert tuple(rows) == names()
    assert {name for name, row in rows.items() if row.status == "present"} == {DEFAULT, "mnist", "synthetic"}
    assert rows["cifar10"].status == "missing"
    assert rows["cifar10"].where == str(tmp_path / "cifar-10-batches-py")
    assert all(row.licence for row in rows.values())


@pytest.mark.parametrize("name", [DEFAULT, "synthetic"])
def test_describe_agrees_with_what_load_gives(name: str, tmp_path: Path) -> None:
    row = next(row for row in describe(tmp_path) if row.name == name)
    dataset = load(name)
    assert row.samples == len(dataset.train_y) + len(dataset.test_y)
    assert (row.classes, row.shape) == (dataset.n_classes, dataset.shape)
    assert row.licence == dataset.manifest["licence"]
