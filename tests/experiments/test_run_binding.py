"""A run goes on with the data, code and versions that it began with, and a finished one is read with its data alone."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idiolect
from idiolect.errors import UserError
from idiolect.experiments import Experiment, run, run_binding
from idiolect.experiments.setting import _dataset
from idiolect.own_code import LoadedCode
from idiolect.records import find_checkpoint
from idiolect.records.manifest import read_manifest, write_manifest
from idiolect.records.tensor_files import read_tensors, write_tensors

from .conftest import Listener

LOOP = {"engine": "loop", "device": "cpu", "checkpoint_every": 1}
TODAY = run_binding.versions()


def interrupt(asked: Any, out: Path, after: int = 2, **options: Any) -> Path:
    with pytest.raises(KeyboardInterrupt):
        run(asked, out=out, watcher=Listener(after), **LOOP, **options)
    (folder,) = out.iterdir()
    return folder


@pytest.fixture
def short(tiny: Experiment) -> Experiment:
    return replace(tiny, rounds=3)


# ---- other data


class Files:
    """A dataset of the package in files, small and unpacked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "mnist"
        self.folder.mkdir()
        for part, rows in (("train", 60), ("t10k", 20)):
            self.write(f"{part}-images-idx3-ubyte", np.random.default_rng(0).integers(0, 256, (rows, 28, 28)))
            self.write(f"{part}-labels-idx1-ubyte", np.arange(rows) % 10)

    def write(self, name: str, values: Any) -> None:
        header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
        (self.folder / name).write_bytes(header + values.astype(np.uint8).tobytes())
        _dataset.cache_clear()  # as in another process


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def on_files(short: Experiment) -> Experiment:
    return replace(short, dataset="mnist", partition="iid", clients=2, model="mlpnet(hidden=4)", valid=0.2)


@pytest.mark.parametrize(
    ("file", "said"),
    [("train-labels-idx1-ubyte", "training labels"), ("t10k-images-idx3-ubyte", "test rows")],
)
def test_other_data_are_refused_with_what_differs(
    on_files: Experiment, files: Files, tmp_path: Path, file: str, said: str
) -> None:
    how = {"out": tmp_path / "out", "data_dir": tmp_path}
    folder = interrupt(on_files, tmp_path / "out", data_dir=tmp_path)
    before, original = (folder / "manifest.json").read_bytes(), (files.folder / file).read_bytes()
    other = (
        np.zeros((60,) if "labels" in file else (20, 28, 28)) + np.arange(60 if "labels" in file else 28) % 9
    )
    files.write(file, other)
    with pytest.raises(
        UserError, match=rf"\.partial was made with other data, which differ in: {said}; give it"
    ):
        run(on_files, resume=True, **how, **LOOP)
    with pytest.raises(UserError, match="other data"):
        run(on_files, resume=True, accept_changes=True, **how, **LOOP)
    assert (folder / "manifest.json").read_bytes() == before
    (files.folder / file).write_bytes(original)
    _dataset.cache_clear()
    done = run(on_files, resume=True, **how, **LOOP)
    assert run(on_files, **how, **LOOP).manifest == done.manifest
    files.write(file, other)
    with pytest.raises(UserError, match=rf"s0 was made with other data, which differ in: {said}; give it"):
        run(on_files, **how, **LOOP)


def test_a_finished_run_whose_data_are_gone_is_read_with_a_note(
    on_files: Experiment, files: Files, tmp_path: Path
) -> None:
    how = {"out": tmp_path / "out", "data_dir": tmp_path}
    run(on_files, **how, **LOOP)
    for path in files.folder.iterdir():
        path.unlink()
    _dataset.cache_clear()
    listener = Listener()
    run(on_files, watcher=listener, **how, **LOOP)
    (sentence,) = listener.heard
    assert "read, not run again; its data are not compared, because they cannot be read" in sentence


@pytest.mark.parametrize("registered", [True, False])
def test_other_data_of_ones_own_are_refused_on_resume(registered: bool, tmp_path: Path) -> None:
    """They are part of a run's name, so that the run of other data would silently begin anew."""
    random = np.random.default_rng(0)
    x, clients = random.normal(size=(60, 4)).astype(np.float32), np.repeat(["a", "b", "c"], 20)
    y = (x[:, 0] > 0).astype(int)

    def settings(rows: Any, labels: Any) -> dict[str, Any]:
        if not registered:
            return {"data": (rows, labels, clients)}
        idiolect.data.catalogue.REGISTERED.pop("mine", None)
        _dataset.cache_clear()  # as in another process
        idiolect.register_dataset("mine", (rows, labels, clients))
        return {"dataset": "mine"}

    common = {"rounds": 3, "seed": 1, "model": "mlpnet(hidden=4)"}
    interrupt("fedavg", tmp_path, **common, **settings(x, y))
    with pytest.raises(UserError, match="other data, which differ in: training labels; give it"):
        run("fedavg", out=tmp_path, resume=True, **common, **settings(x, 1 - y), **LOOP)
    with pytest.raises(UserError, match="other data, which differ in: training rows; give it"):
        run("fedavg", out=tmp_path, resume=True, **common, **settings(x + 1, y), **LOOP)
    run("fedavg", out=tmp_path, resume=True, **common, **settings(x, y), **LOOP)
    assert len(list(tmp_path.iterdir())) == 1


# ---- other code


def other_torch(patch: pytest.MonkeyPatch) -> str:
    patch.setattr(run_binding, "versions", lambda: {**TODAY, "torch": "9.9"})
    patch.setattr("idiolect.experiments.manifest.versions", lambda: {**TODAY, "torch": "9.9"})
    return f"torch {TODAY['torch']}, now 9.9"


def other_source(patch: pytest.MonkeyPatch) -> str:
    now = {**run_binding.package_digests(), "core": "0", "engines": "1"}
    patch.setattr(run_binding, "package_digests", lambda: now)
    patch.setattr("idiolect.experiments.manifest.package_digests", lambda: now)
    return "Idiolect's own source differs in core, engines"


def other_file(patch: pytest.MonkeyPatch) -> str:
    for place in ("experiments.run_binding", "experiments.manifest"):
        loaded = [LoadedCode("elsewhere/mine.py", "2"), LoadedCode("more.py", "3")]
        patch.setattr(f"idiolect.{place}.loaded_code", lambda loaded=loaded: loaded)
    return "folder/mine.py has another text"


@pytest.mark.parametrize("change", [other_torch, other_source, other_file])
def test_other_code_is_refused_on_resume_and_recorded_where_it_is_accepted(
    change: Any, short: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            "idiolect.experiments.manifest.loaded_code", lambda: [LoadedCode("folder/mine.py", "1")]
        )
        interrupt(short, tmp_path)
    for place in ("experiments.run_binding", "experiments.manifest"):  # whatever other tests have loaded
        monkeypatch.setattr(f"idiolect.{place}.loaded_code", lambda: [])
    said = change(monkeypatch)
    with pytest.raises(UserError, match=f"was begun with other code: {re.escape(said)}; .*--accept-changes"):
        run(short, out=tmp_path, resume=True, **LOOP)
    done = run(short, out=tmp_path, resume=True, accept_changes=True, **LOOP)
    assert done.manifest["accepted"] == [{"round": 1, "changed": [said]}]


def test_what_was_accepted_is_not_asked_again_and_stays_in_the_record(
    short: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(short, rounds=4)
    interrupt(asked, tmp_path)
    said = other_torch(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        run(asked, out=tmp_path, resume=True, accept_changes=True, watcher=Listener(3), **LOOP)
    done = run(asked, out=tmp_path, resume=True, **LOOP)
    assert done.manifest["accepted"] == [{"round": 1, "changed": [said]}]


def test_a_change_counts_from_the_checkpoint_that_the_run_goes_on_from(
    short: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest checkpoint is sound and the rows that it needs are not, so that the one before is taken."""
    asked = replace(short, method="fedper", rounds=4)
    folder = interrupt(asked, tmp_path, after=3)
    found = find_checkpoint(folder)
    assert found is not None and found.round == 2
    rows = folder / "private" / "ab"[int(found.tree["private"]["generation"])] / "rows"
    rows.write_bytes(b"")
    said, listener = other_torch(monkeypatch), Listener()
    done = run(asked, out=tmp_path, resume=True, accept_changes=True, watcher=listener, **LOOP)
    assert any("going on from round 1" in sentence for sentence in listener.heard)
    assert done.manifest["accepted"] == [{"round": 1, "changed": [said]}]


@pytest.mark.parametrize("change", [other_torch, other_source])
def test_a_finished_run_is_read_with_a_note_of_other_code(
    change: Any, short: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(short, out=tmp_path, **LOOP)
    assert "accepted" not in first.manifest
    listener, said = Listener(), change(monkeypatch)
    assert run(short, out=tmp_path, watcher=listener, **LOOP).manifest == first.manifest
    name = first.manifest["name"]
    assert listener.heard == [
        f"{name} is finished already: read, not run again; it was made with other code: {said}"
    ]


def test_a_finished_run_with_a_damaged_manifest_is_called_damaged(short: Experiment, tmp_path: Path) -> None:
    first = run(short, out=tmp_path, **LOOP)
    path = first.folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(
        UserError, match=r"manifest\.json is damaged: .*; move .*-s0 away to make the run again"
    ):
        run(short, out=tmp_path, **LOOP)
    assert list(tmp_path.iterdir()) == [first.folder]


# ---- runs of older versions


def test_a_finished_run_that_records_less_is_read_with_a_note(short: Experiment, tmp_path: Path) -> None:
    first = run(short, out=tmp_path, **LOOP)
    older = {key: value for key, value in first.manifest.items() if not key.endswith("_digests")}
    write_manifest(first.folder, older)
    listener = Listener()
    assert run(short, out=tmp_path, watcher=listener, **LOOP).manifest["name"] == first.manifest["name"]
    (sentence,) = listener.heard
    assert sentence.endswith("read, not run again; it does not record its data, which are not compared")


def test_an_interrupted_run_of_an_older_version_goes_on_where_that_is_accepted(
    short: Experiment, tmp_path: Path
) -> None:
    folder = interrupt(short, tmp_path)
    found = find_checkpoint(folder)
    assert found is not None and found.bound["data_digests"] == read_manifest(folder)["data_digests"]
    path = folder / f"{found.name}.safetensors"
    leaves, facts = read_tensors(path)
    write_tensors(path, leaves, {key: value for key, value in facts.items() if key != "bound"})
    with pytest.raises(UserError, match="begun with other code: it does not record its code and data"):
        run(short, out=tmp_path, resume=True, **LOOP)
    done = run(short, out=tmp_path, resume=True, accept_changes=True, **LOOP)
    assert json.dumps(done.manifest["accepted"]).count("does not record") == 1
