"""Checkpoints: round trips, damage, and what is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from idiolect.errors import UserError
from idiolect.records import export_model, load_checkpoint, save_checkpoint


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and list(left) == list(right)
            and all(same(left[k], right[k]) for k in left)
        )
    return left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)


def state(number: int) -> dict[str, Any]:
    return {"server": {"w": torch.full((3, 2), float(number))}, "private": {}}


def test_checkpoint_gives_back_tree_and_tables(tmp_path: Path, tables) -> None:
    shared = torch.arange(6.0).reshape(2, 3)
    tree = {
        "server": {
            "params": {"a/b": shared, "again": shared, "row": shared[1], "turned": shared.T},
            "slots": {},
        },
        "private": {"0": {"n": torch.tensor(7), "h": torch.ones(2, dtype=torch.bfloat16)}, "1": {}},
        "odd": {"none": torch.empty(0, 4), "flag": torch.tensor([True, False])},
        "empty": {},
    }
    save_checkpoint(tmp_path, 12, tree, tables)
    loaded = load_checkpoint(tmp_path)
    assert loaded is not None
    assert loaded[0] == 12
    assert same(tree, loaded[1])
    assert all(loaded[2][name].equals(table) for name, table in tables.items())


def test_checkpoint_of_an_empty_tree_comes_back(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 0, {}, {})
    assert load_checkpoint(tmp_path) == (0, {}, {})


def test_integer_keys_come_back_as_strings(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"private": {3: torch.ones(1)}}, {})
    assert list(load_checkpoint(tmp_path)[1]["private"]) == ["3"]


def test_leaf_that_is_no_tensor_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="/server/round is int"):
        save_checkpoint(tmp_path, 1, {"server": {"round": 3}}, {})


def test_folder_without_checkpoint_gives_none(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path) is None


def test_last_two_checkpoints_are_kept(tmp_path: Path, tables) -> None:
    for number in (2, 9, 10, 100):
        save_checkpoint(tmp_path, number, state(number), tables)
    kept = {
        f"checkpoint-{n}{end}"
        for n in (10, 100)
        for end in (".safetensors", "-rows.parquet", "-rounds.parquet")
    }
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_checkpoints_of_an_abandoned_future_go(tmp_path: Path) -> None:
    for number in (10, 20, 5):
        save_checkpoint(tmp_path, number, state(number), {})
    assert load_checkpoint(tmp_path)[0] == 5
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("file", ["checkpoint-20.safetensors", "checkpoint-20-rows.parquet"])
@pytest.mark.parametrize("damage", ["truncated", "altered", "emptied"])
def test_damaged_newest_falls_back_and_says_so(tmp_path: Path, tables, file: str, damage: str) -> None:
    for number in (10, 20):
        save_checkpoint(tmp_path, number, state(number), tables)
    content = bytearray((tmp_path / file).read_bytes())
    content[-3] ^= 1
    (tmp_path / file).write_bytes({"truncated": content[:-5], "altered": content, "emptied": b""}[damage])
    said: list[str] = []
    number, tree, _ = load_checkpoint(tmp_path, say=said.append)
    assert number == 10
    assert same(tree, state(10))
    assert len(said) == 1
    assert file in said[0]
    assert "round 10" in said[0]


def test_missing_table_falls_back(tmp_path: Path, tables) -> None:
    for number in (10, 20):
        save_checkpoint(tmp_path, number, state(number), tables)
    (tmp_path / "checkpoint-20-rounds.parquet").unlink()
    assert load_checkpoint(tmp_path)[0] == 10


def test_renamed_checkpoint_is_not_believed(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 10, state(10), {}).rename(tmp_path / "checkpoint-30.safetensors")
    with pytest.raises(UserError, match="holds round 10"):
        load_checkpoint(tmp_path)


def test_all_damaged_is_an_error_naming_the_folder(tmp_path: Path) -> None:
    for number in (10, 20):
        save_checkpoint(tmp_path, number, state(number), {}).write_bytes(b"rubbish")
    with pytest.raises(UserError, match=f"every checkpoint in {tmp_path}"):
        load_checkpoint(tmp_path)


def test_exported_model_is_plain_safetensors(tmp_path: Path) -> None:
    path = export_model(tmp_path / "models" / "global.safetensors", {"w": torch.ones(2)}, {"method": "map"})
    assert torch.equal(load_file(path)["w"], torch.ones(2))
    assert [item.name for item in path.parent.iterdir()] == ["global.safetensors"]


def test_records_are_imported_without_torch() -> None:
    check = "import sys, idiolect.records; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
