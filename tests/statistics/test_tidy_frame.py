"""Frames, SQL and differences of many runs, on small records that were never trained."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import idiolect
from idiolect.errors import UserError
from idiolect.records import file_digest, read_manifest, read_runs
from idiolect.records.manifest import write_manifest
from idiolect.reports import gather
from idiolect.statistics import client_scores
from idiolect.statistics.tidy_frame import is_final

from ..small_records import write_run

DOCUMENT = Path(__file__).parents[2] / "docs" / "analysis.md"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five runs, one of them a level deeper, and one that is not finished."""
    out = tmp_path_factory.mktemp("runs")
    write_run(out, "fedavg", 0)
    write_run(out, "fedavg", 1)
    write_run(out, "map(alpha=0.5)", 0, learning_rate=0.1)
    write_run(out, "map(alpha=0.9)", 0, learning_rate=0.1)
    write_run(out / "deeper", "fedavg", 2)
    unfinished = out / "other-s0.partial"
    unfinished.mkdir()
    unfinished.joinpath("manifest.json").write_text(
        json.dumps(
            {"format": "idiolect-run-1", "name": "other", "method": "map", "seed": 0, "status": "running"}
        )
    )
    return out


def test_frame_has_a_row_for_every_measurement_of_every_finished_run(runs, caplog):
    frame = idiolect.load(runs)
    expected = [*read_runs(runs), *read_runs(runs / "deeper")]
    assert len(frame) == sum(len(run.rows) for run in expected)
    assert list(frame.columns) == [
        *("run", "method", "label", "seed", "data_seed", "scene", "dataset", "partition", "model"),
        *("round", "client", "split", "predictor", "moment", "population", "metric", "value", "samples"),
        *("learning_rate", "map.alpha"),
    ]
    for run in expected:
        own = frame[frame["run"] == run.manifest["name"]]
        for name in ("method", "seed", "data_seed", "scene", "round", "client", "value", "samples", "metric"):
            assert own[name].tolist() == run.rows[name].tolist()
    assert frame.groupby("method", observed=True)["map.alpha"].unique().map(list).to_dict()[
        "map(alpha=0.9)"
    ] == [0.9]
    assert frame.loc[frame["label"] == "FedAvg", "learning_rate"].isna().all()
    assert "other-s0.partial is an unfinished run" in caplog.text


def test_final_headline_values_are_those_of_the_reports(runs):
    frame = idiolect.load(runs, final=True, headline=True)
    for run in [*read_runs(runs), *read_runs(runs / "deeper")]:
        own = frame[frame["run"] == run.manifest["name"]].set_index("client")["value"]
        assert own.to_dict() == client_scores(run).to_dict()
    assert len(frame) == 10
    losses = idiolect.load(runs, metric=["loss"], final=True)
    assert (
        set(losses["metric"]) == {"loss"}
        and set(losses["round"]) == {3}
        and set(losses["moment"]) == {"after"}
    )


def _drop(folder: Path, file: str, columns: list[str]) -> None:
    """Takes columns out of a table, as in a record of an older version."""
    pq.write_table(pq.read_table(folder / file).drop_columns(columns), folder / file)
    manifest = read_manifest(folder)
    manifest["sha256"][file] = file_digest(folder / file)
    write_manifest(folder, manifest)


def test_run_that_lies_there_twice_counts_once_and_older_tables_are_read(tmp_path):
    folder = write_run(tmp_path / "a", "fedavg")
    again = write_run(tmp_path / "b", "fedavg")
    for one in (folder, again):
        _drop(one, "clients.parquet", ["run", "method", "seed", "data_seed", "scene", "samples"])
    frame = idiolect.load(tmp_path)
    assert len(frame) == 27 and set(frame["samples"]) == {0} and set(frame["run"]) == {folder.name}
    duckdb = pytest.importorskip("duckdb", reason="the extra duckdb is not installed")
    found = idiolect.connect(tmp_path).sql("SELECT run, samples, count(*) FROM measurements GROUP BY ALL")
    assert found.fetchall() == [(folder.name, 0, 27)] and duckdb


def test_views_hold_nothing_for_what_older_records_did_not_count(tmp_path):
    pytest.importorskip("duckdb", reason="the extra duckdb is not installed")
    folder = write_run(tmp_path / "old", "fedavg")
    for file, columns in (("rounds.parquet", ["steps", "flops"]), ("clients.parquet", ["samples"])):
        _drop(folder, file, columns)
    query = "SELECT DISTINCT steps, flops FROM rounds WHERE seed = 0"
    assert idiolect.connect(tmp_path).sql(query).fetchall() == [(None, None)]
    write_run(tmp_path / "new", "fedavg", 1)
    database = idiolect.connect(tmp_path)
    assert database.sql(query).fetchall() == [(None, None)]
    assert database.sql("SELECT DISTINCT samples FROM measurements WHERE seed = 0").fetchall() == [(0,)]


def test_wrong_metric_or_folder_is_one_sentence(runs, tmp_path):
    with pytest.raises(UserError, match="unknown metric 'acuracy'; did you mean accuracy"):
        idiolect.load(runs, metric="acuracy")
    with pytest.raises(UserError, match="nowhere is not a folder"):
        idiolect.load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no finished run in"):
        idiolect.load(tmp_path)


def _loaded(place: Path) -> set[str]:
    return set(idiolect.load(place)["run"])


def _connected(place: Path) -> set[str]:
    pytest.importorskip("duckdb", reason="the extra duckdb is not installed")
    return {run for (run,) in idiolect.connect(place).sql("SELECT DISTINCT run FROM measurements").fetchall()}


def _differing(place: Path) -> set[str]:
    return {pair.a for pair in idiolect.diff(place, place).pairs}


@pytest.mark.parametrize("readers", [_loaded, _connected, _differing])
@pytest.mark.parametrize(
    ("file", "text", "piece"),
    [
        ("clients.parquet", "cut off", "is damaged: clients.parquet does not match its checksum"),
        ("rounds.parquet", None, "is damaged: rounds.parquet is missing"),
        ("manifest.json", "{", "manifest.json is damaged: "),
        (
            "manifest.json",
            '{"seed": "x"}',
            "manifest.json is damaged: what it says does not match its checksum",
        ),
    ],
)
def test_every_reader_leaves_a_damaged_run_out_with_the_sentence_of_the_report(
    readers, file, text, piece, tmp_path, caplog
):
    sound, folder = write_run(tmp_path, "fedavg", 0), write_run(tmp_path, "fedavg", 1)
    damaged = folder / file
    if text is None:
        damaged.unlink()
    elif text.startswith('{"'):
        damaged.write_text(json.dumps({**json.loads(damaged.read_text()), **json.loads(text)}))
    else:
        damaged.write_text(text)
    said: list[str] = []
    assert [run.folder for run in gather([tmp_path], said.append)] == [sound]
    assert len(said) == 1 and f"{folder}" in said[0] and piece in said[0]
    assert readers(tmp_path) == {sound.name}
    assert set(caplog.messages) == set(said)
    with pytest.raises(UserError, match="no finished run in"):
        readers(folder)


def test_queries_of_the_documentation_answer_what_they_ask(runs):
    pytest.importorskip("duckdb", reason="the extra duckdb is not installed")
    queries = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    best, curve, gain, target, worst = [idiolect.connect(runs).sql(query).fetchall() for query in queries]
    fedavg, *variants = [line[1:] for line in best[::-1]]
    assert fedavg == ("fedavg", 3, 59.0, 53.0)
    assert sorted(variants) == [("map(alpha=0.5)", 1, 60.0, 60.0), ("map(alpha=0.9)", 1, 60.0, 60.0)]
    assert [line for line in curve if line[0] == "fedavg"] == [
        ("fedavg", number, pytest.approx(0.51)) for number in (1, 2, 3)
    ]
    ((_, _, _, clients, mean, share),) = gain
    assert (clients, share) == (4, 0.5) and mean == pytest.approx(0.6 - 0.58)
    assert {(line[0], line[2], line[3]) for line in target} == {("MAP", 1, 2.0), ("FedAvg", 3, 6.0)}
    assert worst[0][2:4] == (0, pytest.approx(0.54)) and len(worst) == 5


def test_views_agree_with_the_frame(runs):
    pytest.importorskip("duckdb", reason="the extra duckdb is not installed")
    database = idiolect.connect(runs)
    frame = idiolect.load(runs, final=True, headline=True)
    values = database.sql("SELECT run, client, value FROM final").fetchall()
    assert sorted(values) == sorted(zip(frame["run"], frame["client"], frame["value"], strict=True))
    assert database.sql("SELECT count(*) FROM rounds").fetchall() == [(15,)]
    assert database.sql(
        'SELECT "map.alpha" FROM runs WHERE learning_rate IS NOT NULL ORDER BY 1'
    ).fetchall() == [
        (0.5,),
        (0.9,),
    ]
    assert database.sql("SELECT * FROM costs").fetchall() == []


def test_without_duckdb_the_extra_is_named(runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UserError, match=r"needs the package duckdb; .*idiolect\[duckdb\]"):
        idiolect.connect(runs)


def test_values_at_the_end_are_final_whatever_rounds_come_after():
    same = {"split": "test", "population": "all", "predictor": "LU", "metric": "accuracy"}
    rows = pd.DataFrame(
        {"round": [2, 3, 3], "moment": ["end", "before", "after"], "value": [1.0, 2.0, 3.0], **same}
    )
    assert is_final(rows).tolist() == [True, False, False]
    assert is_final(rows[1:]).tolist() == [False, True]
    unmeasured = rows[1:].assign(value=[2.0, float("nan")])
    assert is_final(unmeasured).tolist() == [True, False]
