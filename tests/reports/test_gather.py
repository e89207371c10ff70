"""Which folders are reported on, and what is said of the others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from idiolect.errors import UserError
from idiolect.records.manifest import read_manifest, write_manifest
from idiolect.reports import gather

from .invented import write_invented_runs


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return write_invented_runs(tmp_path / "runs", seeds=1)


def names(runs: list) -> set[str]:
    return {run.manifest["name"] for run in runs}


def test_sound_runs_are_found_at_any_depth_and_once(folders: list[Path], tmp_path: Path) -> None:
    said: list[str] = []
    found = gather([tmp_path, folders[0]], said.append)
    assert names(found) == {folder.name for folder in folders} and said == []


def test_each_broken_or_foreign_folder_gets_one_sentence(folders: list[Path], tmp_path: Path) -> None:
    (folders[0] / "clients.parquet").write_bytes(b"PAR1 no longer")
    (folders[1] / "manifest.json").write_text("{")
    (folders[2] / "manifest.json").unlink()
    folders[3].rename(folders[3].with_name(folders[3].name + ".partial"))
    write_manifest(folders[4], {**read_manifest(folders[4]), "seed": "x", "spec": 3})
    (folders[5] / "manifest.json").write_text('{"name": "a package of something else"}')
    (tmp_path / "mine").mkdir()
    said: list[str] = []
    found = gather([tmp_path / "runs", tmp_path / "mine", tmp_path / "nowhere"], said.append)
    assert names(found) == {folder.name for folder in folders[6:]}
    assert len(said) == 8
    for place in [*(folder.name for folder in folders[:6]), "mine", "nowhere"]:
        assert sum(place in sentence for sentence in said) == 1
    assert all("\n" not in sentence and "left out" in sentence for sentence in said)


def test_a_copy_of_a_run_is_left_out(folders: list[Path], tmp_path: Path) -> None:
    shutil.copytree(folders[0], tmp_path / "copy" / folders[0].name)
    said: list[str] = []
    assert len(gather([tmp_path], said.append)) == len(folders)
    assert len(said) == 1 and "repeats" in said[0]


def test_nothing_left_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no finished run"):
        gather([tmp_path], lambda sentence: None)
