"""Writing runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from idiolect.errors import UserError
from idiolect.records import RunWriter, finished, read_run, write_atomically
from idiolect.records.atomic_files import replacing
from idiolect.records.tables import write_pieces


def test_run_is_partial_until_finished(tmp_path: Path, manifest, tables) -> None:
    writer = RunWriter(tmp_path, "one", manifest)
    assert [path.name for path in tmp_path.iterdir()] == ["one.partial"]
    assert json.loads((writer.folder / "manifest.json").read_text())["status"] == "running"
    assert not finished(tmp_path, "one")
    folder = writer.finish(
        **tables, extra_manifest={"timings": {"total": 1.5}, "class_counts": np.eye(2, dtype=int)}
    )
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert {path.name for path in folder.iterdir()} == {
        "manifest.json",
        *(f"{table}.parquet" for table in ("rounds", "clients", "costs", "calibration", "confusion")),
    }
    assert finished(tmp_path, "one")
    written = read_run(folder).manifest
    assert written["timings"] == {"total": 1.5}
    assert written["class_counts"] == [[1, 0], [0, 1]]


@pytest.mark.parametrize("group", [1, 2, 3, 1 << 20])
def test_table_in_pieces_gives_the_file_of_the_whole(tmp_path: Path, tables, group: int, monkeypatch) -> None:
    monkeypatch.setattr("idiolect.records.tables.ROW_GROUP", group)
    rows = pa.concat_tables([tables["rows"]] * 4)
    pieces = [rows.slice(0, 1), rows.slice(1, 4), rows.slice(5, 0), rows.slice(5)]
    whole = write_pieces(tmp_path / "whole", [rows], rows.schema)
    assert write_pieces(tmp_path / "pieces", pieces, rows.schema) == whole
    assert pq.read_table(tmp_path / "pieces").equals(rows)
    pq.write_table(rows.combine_chunks(), tmp_path / "plain", row_group_size=group)
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "whole").read_bytes()


def test_table_without_rows_has_its_columns(tmp_path: Path, tables) -> None:
    write_pieces(tmp_path / "none", [], tables["rows"].schema)
    assert pq.read_table(tmp_path / "none").schema.equals(tables["rows"].schema)


def test_finished_run_is_never_overwritten(tmp_path: Path, finished_run: Path, manifest) -> None:
    before = {path.name: path.read_bytes() for path in finished_run.iterdir()}
    with pytest.raises(UserError, match="never overwritten"):
        RunWriter(finished_run.parent, "one", manifest)
    assert {path.name: path.read_bytes() for path in finished_run.iterdir()} == before


def test_run_that_appears_meanwhile_is_not_replaced(tmp_path: Path, manifest, tables) -> None:
    writer = RunWriter(tmp_path, "one", manifest)
    writer.final.mkdir()
    with pytest.raises(UserError, match="never overwritten"):
        writer.finish(**tables)


def test_one_writer_at_a_time(tmp_path: Path, manifest, tables) -> None:
    with RunWriter(tmp_path, "one", manifest) as first:
        before = {path.name: path.stat().st_mtime_ns for path in first.folder.iterdir()}
        with pytest.raises(UserError, match=r"one\.partial is being written by another process"):
            RunWriter(tmp_path, "one", manifest)
        assert {path.name: path.stat().st_mtime_ns for path in first.folder.iterdir()} == before
    with RunWriter(tmp_path, "one", manifest) as second:
        final = second.finish(**tables)
        final.rename(second.folder)
        RunWriter(tmp_path, "one", manifest)


def test_folder_without_locks_is_written_all_the_same(tmp_path: Path, manifest, monkeypatch) -> None:
    def refuse(handle: int, kind: int) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with RunWriter(tmp_path, "one", manifest):
        assert RunWriter(tmp_path, "one", manifest).folder.exists()


def test_abandoned_run_keeps_its_files(tmp_path: Path, manifest) -> None:
    with RunWriter(tmp_path, "one", manifest) as writer:
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


def test_full_disk_names_the_file(tmp_path: Path) -> None:
    """Arrow and Python say of a write that failed how it failed, and not where."""

    def write() -> None:
        with replacing(tmp_path / "t.parquet") as temporary:
            temporary.symlink_to("/dev/full")
            pq.write_table(pa.table({"a": range(10**6)}), temporary)

    with pytest.raises(OSError, match="No space left") as raised:
        write()
    assert raised.value.filename == str(tmp_path / "t.parquet")
    assert list(tmp_path.iterdir()) == []
