"""The scene of a run, and the columns by which every row says which run it belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from idiolect.records import data_seed_of, file_digest, read_run, scene_of
from idiolect.records.manifest import read_manifest, write_manifest

SPEC = {"dataset": "digits", "partition": "iid", "model": "mlpnet", "clients": 50, "learning_rate": 0.1}


@pytest.mark.parametrize(
    ("setting", "same"),
    [
        ({"learning_rate": 0.5}, True),
        ({"rounds": 3}, True),
        ({"partition": "label_k(k=2)"}, False),
        ({"test": 0.3}, False),
        ({"dataset": "letters"}, False),
        ({"model": "lenet"}, False),
        ({"clients": 10}, False),
        ({"newcomers": 5}, False),
        ({"pool": "all"}, False),
        ({"client_test": "labels"}, False),
        ({"valid": 0.0}, False),
        ({"public": 100}, False),
        ({"public_in_test": True}, False),
        ({"under": ["label_noise(share=0.3)"]}, False),
    ],
)
def test_scene_is_what_makes_clients_comparable(setting: dict[str, Any], same: bool) -> None:
    assert (scene_of({"spec": SPEC}) == scene_of({"spec": SPEC | setting})) == same


def test_settings_that_a_record_lacks_have_their_usual_value() -> None:
    assert scene_of({"spec": SPEC}) == scene_of({"spec": SPEC | {"newcomers": 0, "under": []}})


def test_data_seed_follows_the_seed_unless_recorded() -> None:
    assert data_seed_of({"seed": 4}) == 4
    assert data_seed_of({"seed": 4, "data_seed": 7}) == 7


def test_rows_in_the_file_name_their_run(finished_run: Path) -> None:
    table = pq.read_table(finished_run / "clients.parquet").to_pandas()
    assert table.loc[0, ["run", "method", "seed", "data_seed"]].tolist() == ["one", "fedavg", 4, 4]
    assert table["scene"].nunique() == 1 and "#" in table.loc[0, "scene"]


def test_records_without_these_columns_are_read(finished_run: Path) -> None:
    """As records were before rows named their run."""
    path = finished_run / "clients.parquet"
    old = pq.read_table(path).drop_columns(["run", "method", "seed", "data_seed", "scene", "samples"])
    pq.write_table(old, path)
    manifest = read_manifest(finished_run)
    manifest["sha256"]["clients.parquet"] = file_digest(path)
    write_manifest(finished_run, manifest)
    rows = read_run(finished_run).rows
    assert rows["data_seed"].tolist() == [4, 4] and rows["samples"].tolist() == [0, 0]
    assert list(rows.columns[-2:]) == ["value", "samples"]
