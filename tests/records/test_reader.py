"""Reading runs, sound and damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from idiolect.errors import UserError
from idiolect.records import RunWriter, read_run, read_runs
from idiolect.records.manifest import read_manifest, write_manifest


def test_run_reads_back_with_its_name_and_seed(finished_run: Path) -> None:
    run = read_run(finished_run)
    assert list(run.rows.columns[:6]) == ["run", "method", "seed", "data_seed", "scene", "round"]
    assert run.rows["value"].tolist() == [0.25, 0.75]
    assert set(run.rows["run"]) == {"one"}
    assert set(run.rounds["seed"]) == {4}


@pytest.mark.parametrize("file", ["rounds.parquet", "clients.parquet"])
@pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
def test_damaged_table_is_refused_by_name(finished_run: Path, file: str, damage: str) -> None:
    path = finished_run / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content if damage == "altered" else content[:-7])
    with pytest.raises(UserError, match=rf"{finished_run}.*{file}"):
        read_run(finished_run)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"format": "idio', "damaged"),
        ("[1, 2]", "not a run"),
        ('{"name": "someone else\'s"}', "not a run"),
        ('{"format": "idiolect-run-1", "status": "finished"}', "lacks name, method, seed"),
    ],
)
def test_foreign_or_broken_manifest_is_refused(finished_run: Path, content: str, why: str) -> None:
    (finished_run / "manifest.json").write_text(content)
    with pytest.raises(UserError, match=why):
        read_run(finished_run)


def test_a_manifest_with_any_bit_flipped_is_refused_or_says_the_same(finished_run: Path) -> None:
    expected, path = read_manifest(finished_run), finished_run / "manifest.json"
    content = path.read_bytes()
    refused = 0
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 7
        path.write_bytes(damaged)
        try:
            assert read_manifest(finished_run) == expected, content[place - 20 : place + 20]
        except UserError:
            refused += 1
    assert refused > len(content) * 0.8


def test_a_manifest_of_older_versions_has_no_checksum(finished_run: Path) -> None:
    path = finished_run / "manifest.json"
    document = {**json.loads(path.read_text()), "format": "idiolect-run-1"}
    path.write_text(json.dumps({**document, "method": "other"}))
    with pytest.raises(
        UserError, match=r"manifest.json is damaged: what it says does not match its checksum"
    ):
        read_run(finished_run)
    del document["checksum"]
    path.write_text(json.dumps(document))
    assert read_run(finished_run).manifest["method"] == "fedavg"


def test_manifest_without_checksums_is_refused(finished_run: Path) -> None:
    document = read_manifest(finished_run)
    del document["sha256"]
    write_manifest(finished_run, document)
    with pytest.raises(UserError, match="no checksum"):
        read_run(finished_run)


def test_partial_run_is_refused_with_its_status(tmp_path: Path, manifest) -> None:
    folder = RunWriter(tmp_path, "two", manifest).folder
    with pytest.raises(UserError, match=r"unfinished run.*running"):
        read_run(folder)


@pytest.mark.parametrize("where", ["nowhere", "file", "empty"])
def test_what_is_no_run_is_refused(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=where):
        read_run(tmp_path / where)
    with pytest.raises(UserError, match=where):
        read_runs(tmp_path / where)


def test_runs_of_a_folder_leave_out_unfinished_ones_aloud(finished_run: Path, manifest, tables) -> None:
    out = finished_run.parent
    RunWriter(out, "three", manifest)
    RunWriter(out, "another", manifest).finish(**tables)
    (out / "report").mkdir()
    said: list[str] = []
    assert [run.manifest["name"] for run in read_runs(out, say=said.append)] == ["another", "one"]
    assert len(said) == 1
    assert "three.partial" in said[0]


def test_runs_from_a_list_come_once_in_its_order(finished_run: Path, manifest, tables) -> None:
    other = RunWriter(finished_run.parent, "another", manifest).finish(**tables)
    names = [run.manifest["name"] for run in read_runs([finished_run, other, finished_run.parent])]
    assert names == ["one", "another"]


def test_damaged_run_in_a_folder_is_not_passed_over(finished_run: Path) -> None:
    shutil.copytree(finished_run, finished_run.parent / "copy")
    (finished_run / "clients.parquet").write_bytes(b"")
    with pytest.raises(UserError, match="one is damaged"):
        read_runs(finished_run.parent)
