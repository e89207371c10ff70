"""Writing runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from idiolect.errors import UserError
from idiolect.records import RunWriter, finished, read_run, write_atomically
from idiolect.records.atomic import replacing


def test_run_is_partial_until_finished(tmp_path: Path, manifest, tables) -> None:
    writer = RunWriter(tmp_path, "one", manifest)
    assert [path.name for path in tmp_path.iterdir()] == ["one.partial"]
    assert json.loads((writer.folder / "manifest.json").read_text())["status"] == "running"
    assert not finished(tmp_path, "one")
    folder = writer.finish(
        **tables, extra_manifest={"timings": {"total": 1.5}, "class_counts": np.eye(2, dtype=int)}
    )
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "rounds.parquet", "clients.parquet"}
    assert finished(tmp_path, "one")
    written = read_run(folder).manifest
    assert written["timings"] == {"total": 1.5}
    assert written["class_counts"] == [[1, 0], [0, 1]]


def test_finished_run_is_never_overwritten(tmp_path: Path, finished_run: Path, manifest) -> None:
    before = {path.name: path.read_bytes() for path in finished_run.iterdir()}
    with pytest.raises(UserError, match="never overwritten"):
        RunWriter(finished_run.parent, "one", manifest)
    assert {path.name: path.read_bytes() for path in finished_run.iterdir()} == before


def test_second_writer_of_one_run_cannot_replace_the_first(tmp_path: Path, manifest, tables) -> None:
    first, second = RunWriter(tmp_path, "one", manifest), RunWriter(tmp_path, "one", manifest)
    first.finish(**tables)
    with pytest.raises(UserError, match="one"):
        second.finish(**tables)


def test_abandoned_run_keeps_its_files(tmp_path: Path, manifest) -> None:
    writer = RunWriter(tmp_path, "one", manifest)
    (writer.folder / "checkpoint-3.safetensors").write_bytes(b"state")
    again = RunWriter(tmp_path, "one", manifest)
    assert (again.folder / "checkpoint-3.safetensors").read_bytes() == b"state"
    again.discard()
    assert (again.folder / "checkpoint-3.safetensors").exists()


def test_discard_removes_a_fresh_run(tmp_path: Path, manifest) -> None:
    RunWriter(tmp_path, "one", manifest).discard()
    assert not list(tmp_path.iterdir())


def test_writer_refuses_a_manifest_without_a_seed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lacks seed"):
        RunWriter(tmp_path, "one", {"method": "fedavg"})


def test_writer_refuses_swapped_tables_and_stays_partial(tmp_path: Path, manifest, tables) -> None:
    writer = RunWriter(tmp_path, "one", manifest)
    with pytest.raises(ValueError, match=r"rounds\.parquet"):
        writer.finish(rounds=tables["rows"], rows=tables["rounds"])
    assert not finished(tmp_path, "one")


def test_writer_below_a_file_is_refused_by_name(tmp_path: Path, manifest) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(UserError, match="out"):
        RunWriter(tmp_path / "out", "one", manifest)


def write_half(path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text("half of the ne")
        raise KeyboardInterrupt


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = write_atomically(tmp_path / "note", "old")
    with pytest.raises(KeyboardInterrupt):
        write_half(path)
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["note"]
