"""Checkpoints: round trips, damage, and what is kept."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from idiolect.errors import UserError
from idiolect.records import (
    RoundBuffer,
    RowBuffer,
    RowKind,
    checkpoints,
    export_model,
    find_checkpoint,
    load_checkpoint,
    save_checkpoint,
    write_table,
)


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


def test_checkpoint_keeps_values_that_are_missing(tmp_path: Path) -> None:
    """A score that does not exist, such as the accuracy of a client without test rows, is NaN."""
    for number in (1, 2):
        save_checkpoint(tmp_path, number, state(number), {"rows": pa.table({"value": [0.5, math.nan]})})
    (_, _, tables) = load_checkpoint(tmp_path) or (0, {}, {})
    assert math.isnan(tables["rows"]["value"][1].as_py())


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


def growing(number: int) -> dict[str, Any]:
    """The rows of one round."""
    rounds, rows = RoundBuffer(), RowBuffer()
    rounds.add(number, 0.5, 2, 10, 20, 0.7)
    rows.extend(number, [0, 1], RowKind("test", "global", "after", "all", "accuracy"), [0.25, number])
    return {"rounds": rounds.table(), "rows": rows.table()}


def test_tables_grow_by_what_is_new(tmp_path: Path) -> None:
    last = None
    for number in range(1, 30):
        last = save_checkpoint(tmp_path, number, state(number), growing(number), last)
        found, tree, tables = load_checkpoint(tmp_path)
        assert found == number and same(tree, state(number))
        assert tables["rounds"]["round"].to_pylist() == list(range(1, number + 1))
        assert tables["rows"]["value"].to_pylist() == [v for n in range(1, number + 1) for v in (0.25, n)]
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
    assert len(list(tmp_path.glob("*.parquet"))) <= 2 * 2 * 5  # two tables, two checkpoints, 29 < 2**5


def test_checkpoint_writes_less_than_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row twice log2(n) times on average; from a limit on a file is left alone."""
    written: list[int] = []
    original = checkpoints.write_table
    monkeypatch.setattr(checkpoints, "write_table", lambda p, t: written.append(t.num_rows) or original(p, t))
    last = None
    for number in range(1, 33):
        last = save_checkpoint(tmp_path, number, {}, {"rounds": growing(number)["rounds"]}, last)
    assert sum(written) < 2 * 32 * 6
    assert 30 <= max(written) <= 32
    monkeypatch.setattr(checkpoints, "MOST_ROWS", 4)
    written.clear()
    for number in range(33, 65):
        last = save_checkpoint(tmp_path, number, {}, {"rounds": growing(number)["rounds"]}, last)
    assert max(written) <= 2 * 4
    assert load_checkpoint(tmp_path)[2]["rounds"]["round"].to_pylist() == list(range(1, 65))


def test_values_that_are_not_defined_are_kept(tmp_path: Path) -> None:
    rows = RowBuffer()
    rows.extend(1, [0, 1], RowKind("test", "global", "after", "all", "auc"), [float("nan"), 0.5])
    save_checkpoint(tmp_path, 1, state(1), {"rows": rows.table()})
    found = load_checkpoint(tmp_path)[2]["rows"]["value"].to_pylist()
    assert found[0] != found[0] and found[1] == 0.5


def test_file_that_was_altered_is_not_taken_in(tmp_path: Path) -> None:
    first = save_checkpoint(tmp_path, 1, state(1), growing(1))
    pq.write_table(growing(9)["rounds"], tmp_path / "checkpoint-1-rounds.parquet")
    with pytest.raises(UserError, match=r"checkpoint-1-rounds\.parquet does not match its checksum"):
        save_checkpoint(tmp_path, 2, state(2), growing(2), first)


def test_checkpoints_without_news_write_no_more_than_a_copy(tmp_path: Path) -> None:
    last = save_checkpoint(tmp_path, 1, state(1), growing(1))
    nothing = {name: table.slice(0, 0) for name, table in growing(1).items()}
    for number in (2, 3, 4):
        last = save_checkpoint(tmp_path, number, state(number), nothing, last)
        assert len(list(tmp_path.glob("*.parquet"))) == 2 * 2
        assert load_checkpoint(tmp_path)[2]["rows"].num_rows == 2


def test_kept_checkpoints_share_no_file(tmp_path: Path) -> None:
    """Damage to all files of one leaves the other, and the next checkpoint is independent of both."""
    last = None
    for number in range(1, 20):
        last = save_checkpoint(tmp_path, number, state(number), growing(number), last)
        if number % 5 == 0:
            for path in tmp_path.glob(f"checkpoint-{number}*"):
                path.write_bytes(b"rubbish")
            found = find_checkpoint(tmp_path, lambda sentence: None)
            assert found is not None and found.round == number - 1
            files = {
                file for table in checkpoints._table_files(tmp_path, found.name).values() for file in table
            }
            assert not any((tmp_path / file).read_bytes() == b"rubbish" for file in files)
            last = save_checkpoint(tmp_path, number, state(number), growing(number), found.name)
        kept = [checkpoints._table_files(tmp_path, name) for name in checkpoints._names_in(tmp_path)]
        files = [file for tables in kept for held in tables.values() for file in held]
        assert len(files) == len(set(files))
        assert {path.name for path in tmp_path.glob("*.parquet")} == set(files)
        assert load_checkpoint(tmp_path)[2]["rounds"]["round"].to_pylist() == list(range(1, number + 1))


def test_files_that_are_taken_over_are_looked_at(tmp_path: Path) -> None:
    """The file of round 1 is damaged when round 3 takes it over: its rows come from the checkpoint of round 2."""
    first = save_checkpoint(tmp_path, 1, state(1), growing(1))
    second = save_checkpoint(tmp_path, 2, state(2), growing(2), first)
    for path in tmp_path.glob("checkpoint-1-*.parquet"):
        path.write_bytes(path.read_bytes()[:-9] + b"\0" * 9)
    save_checkpoint(tmp_path, 3, state(3), growing(3), second)
    assert load_checkpoint(tmp_path)[2]["rounds"]["round"].to_pylist() == [1, 2, 3]


def test_what_was_written_otherwise_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(path: Path, table: Any) -> str:
        return write_table(path, table.slice(0, table.num_rows - 1))

    save_checkpoint(tmp_path, 1, state(1), growing(1))
    monkeypatch.setattr(checkpoints, "write_table", careless)
    with pytest.raises(UserError, match=r"checkpoint-2-rounds.parquet reads back otherwise"):
        save_checkpoint(tmp_path, 2, state(2), growing(2))
    assert load_checkpoint(tmp_path)[0] == 1


def test_same_round_can_be_saved_again_with_more(tmp_path: Path) -> None:
    last = None
    for number, round in ((1, 1), (2, 2), (3, 2)):
        last = save_checkpoint(tmp_path, round, state(number), growing(number), last)
    assert last == (2, 1)
    number, tree, tables = load_checkpoint(tmp_path)
    assert number == 2 and same(tree, state(3))
    assert tables["rounds"]["round"].to_pylist() == [1, 2, 3]


def test_run_that_goes_on_from_an_older_checkpoint_leaves_the_newer_ones_files(tmp_path: Path) -> None:
    first = save_checkpoint(tmp_path, 10, state(10), growing(10))
    save_checkpoint(tmp_path, 20, state(20), growing(20), first)
    (tmp_path / "checkpoint-20.safetensors").write_bytes(b"rubbish")
    assert load_checkpoint(tmp_path, say=lambda sentence: None)[0] == 10
    save_checkpoint(tmp_path, 20, state(7), growing(7), first)
    number, tree, tables = load_checkpoint(tmp_path)
    assert number == 20 and same(tree, state(7))
    assert tables["rounds"]["round"].to_pylist() == [10, 7]


def test_missing_piece_of_a_table_is_damage(tmp_path: Path) -> None:
    last = None
    for number in (1, 2, 3):
        last = save_checkpoint(tmp_path, number, state(number), growing(number), last)
    (tmp_path / "checkpoint-3-rows.parquet").unlink()
    assert load_checkpoint(tmp_path, say=lambda sentence: None)[0] == 2
    (tmp_path / "checkpoint-2-rows.parquet").unlink()
    with pytest.raises(UserError, match=r"checkpoint-2-rows\.parquet is missing"):
        load_checkpoint(tmp_path)


def test_renamed_checkpoint_is_not_believed(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 10, state(10), {})
    (tmp_path / "checkpoint-10.safetensors").rename(tmp_path / "checkpoint-30.safetensors")
    with pytest.raises(UserError, match="holds round 10"):
        load_checkpoint(tmp_path)


def test_all_damaged_is_an_error_naming_the_folder(tmp_path: Path) -> None:
    for number in (10, 20):
        name = save_checkpoint(tmp_path, number, state(number), {})
        (tmp_path / f"{name}.safetensors").write_bytes(b"rubbish")
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
