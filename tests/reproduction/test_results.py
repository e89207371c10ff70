"""Results: what is collected of runs, and tables that are printed from it without training."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from contextlib import suppress

import pytest

from idiolect.cli import main
from idiolect.errors import UserError
from idiolect.experiments.jobs import campaign, side_by_side
from idiolect.records import read_run
from idiolect.records.manifest import write_manifest
from idiolect.reports import gather, write_page, write_report
from idiolect.reproduction import results
from idiolect.reproduction.reproduce import reproduce
from idiolect.reproduction.results import Results, collect

LOOP = {"engine": "loop", "device": "cpu", "quiet": True}
CELLS = {"columns": ["fa-lenet"], "methods": ["fedavg", "map", "fedrs"]}


@pytest.fixture(scope="module")
def made(tiny_scenes, tmp_path_factory):
    """Runs of two tables, of which one method diverges; with three seeds, and one more method with one seed."""
    out = tmp_path_factory.mktemp("runs")
    reproduce("map-table1", preset="reproduction", seeds=3, out=out, **CELLS, **LOOP)
    others = {"columns": ["fa-lenet"], "methods": ["fedprox"], "out": out, **LOOP}
    done = reproduce("map-table1", preset="reproduction", seeds=1, **others)
    reproduce("map-table1", preset="paper", seeds=1, **others)
    return out, done


@pytest.fixture
def collected(made, tmp_path):
    heard: list[str] = []
    done = collect([made[0]], tmp_path / "results", heard.append, "idiolect reproduce map-table1")
    assert not heard
    return tmp_path / "results", done


@pytest.fixture
def untrained(monkeypatch):
    """No run can be made."""

    def refuse(*given: object) -> None:
        raise AssertionError("something was trained")

    monkeypatch.setattr(side_by_side, "make_run", refuse)
    monkeypatch.setattr(campaign, "run_tasks", refuse)


def cells(done):
    return {(one.row, one.column): one for one in done.numbers}


def server_accuracy(made, label, preset):
    """Read from the records of the whole runs, by seed."""
    found = {}
    for path in sorted(made[0].glob("*/manifest.json")):
        run = read_run(path.parent)
        if run.manifest["label"] == label and any(
            f"preset {preset}" in note for note in run.manifest["notes"]
        ):
            rows = run.rows[(run.rows["split"] == "server") & (run.rows["round"] == 2)]
            rows = rows[(rows["metric"] == "accuracy") & (rows["predictor"] == "global")]
            found[run.manifest["seed"]] = 100 * rows["value"].item()
    return found


def test_table_from_results_has_the_numbers_of_the_runs(made, collected, untrained, tmp_path):
    done = reproduce("map-table1", from_results=collected[0], out=tmp_path, **LOOP)
    found = cells(done)
    for row in ("FedAvg", "MAP"):
        values, one = server_accuracy(made, row, "reproduction"), found[row, "fa-lenet"]
        assert set(values) == {0, 1, 2} and one.value == pytest.approx(sum(values.values()) / 3)
        assert one.seeds == 3 and one.interval is not None
    single = found["FedProx", "fa-lenet"]
    assert (single.seeds, single.interval, single.value) == (1, None, made[1].numbers[0].value)
    assert found["FedRS", "fa-lenet"].diverged == 3
    assert found["MOON", "fa-lenet"].text_without_value == "not run"
    assert found["FedAvg", "c10-tfcnn"].text_without_value == "not run"
    table = (tmp_path / "map-table1/map-table1.md").read_text()
    (line,) = [line for line in table.splitlines() if line.startswith("| FedProx")]
    assert f"| {single.value:.2f} [1] ({single.paper:.2f}) |" in line and "not run (" in line
    (line,) = [line for line in table.splitlines() if line.startswith("| FedRS")]
    assert "| diverged (3 of 3 seeds) (" in line
    assert "nothing was trained" in table and "- fa-lenet: preset reproduction, float32" in table
    rows = list(csv.DictReader((tmp_path / "map-table1/map-table1.csv").read_text().splitlines()))
    assert {row["seeds"] for row in rows if row["row"] == "MAP" and row["column"] == "fa-lenet"} == {"3"}


def test_preset_and_seeds_can_be_asked_for(made, collected, untrained, tmp_path):
    asked = {"columns": ["fa-lenet"], "from_results": collected[0], "out": tmp_path, **LOOP}
    found = cells(reproduce("map-table1", preset="paper", **asked))
    assert found["FedProx", "fa-lenet"].value == pytest.approx(server_accuracy(made, "FedProx", "paper")[0])
    assert found["MAP", "fa-lenet"].text_without_value == "not run"
    found = cells(reproduce("map-table1", seeds=1, **asked))
    assert (found["MAP", "fa-lenet"].seeds, found["MAP", "fa-lenet"].interval) == (1, None)
    found = cells(reproduce("map-table1", precision="tf32", **asked))
    assert found["MAP", "fa-lenet"].text_without_value == "not run"  # no run was made in it
    with pytest.raises(UserError, match="quick runs are no results"):
        reproduce("map-table1", quick=True, **asked)


def test_figure_is_read_from_results(collected, untrained, tmp_path):
    done = reproduce("map-fig8", from_results=collected[0], methods=["map"], out=tmp_path, **LOOP)
    assert {one.text_without_value for one in done.numbers if one.value is None} <= {"not run"}


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("learning_rate", 0.5, "was made with learning_rate=0.5 in place of 0.03; it fills no cell"),
        ("rounds", 3, "was made with rounds=3 in place of 2"),
        ("augmentation", "crop_flip", "was made with augmentation='crop_flip' in place of 'none'"),
        ("seed", 7, "was made with seed=7 in place of 0"),
        ("method", "fedprox(preset=official, weight=0.5)", "was made with method='fedprox"),
    ],
)
def test_record_of_other_settings_fills_no_cell(key, value, sentence, collected, untrained, tmp_path):
    folder = collected[0]
    path = next(
        path
        for path in folder.glob("runs/fedprox*/manifest.json")
        if "preset reproduction" in json.loads(path.read_text())["notes"][-1]
    )
    manifest = json.loads(path.read_text())
    manifest["spec"][key] = value
    write_manifest(path.parent, manifest)
    asked = {"columns": ["fa-lenet"], "preset": "reproduction", "seeds": 1, "out": tmp_path, **LOOP}
    found = cells(reproduce("map-table1", from_results=folder, **asked))
    one = found["FedProx", "fa-lenet"]
    assert one.value is None and one.text_without_value == "refused"
    assert sentence in one.failed and path.parent.name in one.failed
    assert found["MAP", "fa-lenet"].value is not None


def test_renamed_record_and_altered_numbers_fill_no_cell(collected, untrained, tmp_path):
    folder = collected[0]
    named = {
        json.loads(path.read_text())["label"]: path.parent for path in folder.glob("runs/*-s0/manifest.json")
    }
    shutil.rmtree(named["MAP"])
    shutil.copytree(named["FedAvg"], named["MAP"])  # the numbers of one method under the name of another
    table = named["FedProx"] / "clients.parquet"
    table.write_bytes(table.read_bytes()[:-1] + b"X")
    asked = {"columns": ["fa-lenet"], "seeds": 1, "out": tmp_path, **LOOP}
    found = cells(reproduce("map-table1", from_results=folder, **asked))
    assert f"the record {named['MAP'].name} was made with method='fedavg'" in found["MAP", "fa-lenet"].failed
    failed = reproduce("map-table1", preset=preset_of(named["FedProx"]), from_results=folder, **asked)
    assert "clients.parquet does not match its checksum" in cells(failed)["FedProx", "fa-lenet"].failed


def cut(text):
    return text[: len(text) // 2]


def unsealed(text):
    return text.replace('"seed":1', '"seed":2').replace('"seed": 1', '"seed": 2')


@pytest.mark.parametrize("damage", [cut, unsealed])
def test_damaged_manifest_is_left_out_by_name_and_fills_no_cell(damage, collected, untrained, tmp_path):
    folder, heard = collected[0], []
    path = next(
        path
        for path in folder.glob("runs/*-s1/manifest.json")
        if json.loads(path.read_text())["label"] == "MAP"
    )
    before = path.read_text()
    path.write_text(damage(before))
    assert path.read_text() != before
    found = Results.open(folder, heard.append)
    (sentence,) = heard
    assert sentence.startswith(f"{path} is damaged: ") and sentence.endswith("; it is left out")
    assert path.parent.name not in found.manifests and len(found.manifests) == 10
    asked = {"columns": ["fa-lenet"], "preset": "reproduction", "out": tmp_path, **LOOP}
    shown = cells(reproduce("map-table1", from_results=folder, **asked))
    assert f"{path} is damaged" in shown["MAP", "fa-lenet"].failed
    assert shown["FedAvg", "fa-lenet"].seeds == 3


def preset_of(folder):
    return results.use_of(json.loads((folder / "manifest.json").read_text())).preset


def test_collected_records_are_small_and_say_how_they_were_made(made, collected):
    folder, done = collected
    assert len(done.added) == 11 and done.known == 0
    assert done.bytes == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert done.bytes / len(done.added) < 20_000
    for path in folder.glob("runs/*"):
        small, whole = read_run(path), read_run(made[0] / path.name)
        for key in ("commit", "hardware", "versions", "seconds", "resources", "engine", "date", "spec"):
            assert small.manifest[key] == whole.manifest[key], key
        assert small.manifest["command"] == "idiolect reproduce map-table1"
        if len(whole.rows):
            last = whole.rows["round"].max()
            assert repr(small.rows[small.rows["round"] == last].to_dict("list")) == repr(
                whole.rows[whole.rows["round"] == last].to_dict("list")
            )
    again = collect([made[0]], folder, lambda sentence: None)
    assert (again.added, again.known) == ([], 11)


def test_results_are_records_that_reports_read(collected, tmp_path):
    heard: list[str] = []
    found = [
        run for run in gather([collected[0]], heard.append) if "preset paper" not in run.manifest["notes"][-1]
    ]
    assert len(found) == 10 and not heard
    page = write_page(found, tmp_path / "report.html").read_text()
    assert "FedRS diverged (3 of 3 seeds" in page and "ScaMAP" not in page
    assert write_report(found, tmp_path / "report")


def test_what_is_no_result_is_left_out_by_name(made, tiny, tmp_path):
    import idiolect  # noqa: PLC0415 - for this one alone

    out, heard = tmp_path / "runs", []
    idiolect.run(tiny, out=out, **LOOP)
    source = next(path.parent for path in made[0].glob("*/manifest.json") if path.parent.name.endswith("-s1"))
    altered = out / source.name
    shutil.copytree(source, altered)
    manifest = json.loads((altered / "manifest.json").read_text())
    manifest["spec"]["learning_rate"] = 0.5
    write_manifest(altered, manifest)
    done = collect([out], tmp_path / "results", heard.append)
    assert not done.added and len(heard) == 2
    assert any("belongs to no scenario of a paper; it is left out" in line for line in heard)
    assert any(
        f"the record {source.name} states other settings than those that give its name" in line
        for line in heard
    )
    with pytest.raises(UserError, match="holds no results; idiolect collect RUNS --into"):
        Results.open(tmp_path / "results")


def test_commands_collect_and_print(made, untrained, tmp_path, monkeypatch, capsys):
    def call(*words):
        monkeypatch.setattr(sys, "argv", ["idiolect", *map(str, words)])
        with suppress(SystemExit):
            main()
        return capsys.readouterr().out

    assert call("collect", made[0], "--into", tmp_path / "results").startswith(
        "11 runs added, 0 known already; "
    )
    words = ("--from", tmp_path / "results", "--column", "fa-lenet", "--out", tmp_path / "out")
    printed = call("reproduce", "map-table1", *words)
    assert "not run" in printed and "Seeds" in printed
    assert "diverged" in printed and "preset reproduction, float32" in printed
