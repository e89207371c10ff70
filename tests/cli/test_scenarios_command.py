"""``idiolect scenarios``, and ``--scenario`` on run and compare."""

from __future__ import annotations

import json

import pytest

from idiolect.records import read_manifest

SMALL = (
    *("--dataset", "fashion-mnist-12k", "--rounds", "1", "--clients", "20", "--engine", "loop"),
    *("--device", "cpu", "--set", "local_epochs=0.1", "--set", "participation_rate=0.1"),
)


def test_list_says_what_is_there_and_what_is_missing(idiolect):
    answer = idiolect("scenarios")
    assert answer.code == 0
    line = next(text for text in answer.out.splitlines() if "map-c10-tfcnn" in text)
    assert "missing" in line and "cifar10" in line and "map" in line


def test_list_as_json(idiolect):
    found = {entry["name"]: entry for entry in json.loads(idiolect("scenarios", "--json").out)}
    assert len(found) == 69
    assert found["map-fa-lenet"]["dataset"] == "fashion-mnist" and not found["map-fa-lenet"]["present"]
    assert found["map-c10-tfcnn"]["presets"] == ["paper", "official", "clipped", "reproduction"]
    assert not found["map-o2"]["runs"]


def test_page_explains_settings_tables_command_and_warning(idiolect):
    out = idiolect("scenarios", "map-c10-tfcnn").out
    for piece in (
        "get it with `idiolect datasets get cifar10",
        "Warning: without clipping and warm-up FedAvg was seen to diverge to chance",
        "map-table1, map-table2",
        "idiolect compare --scenario map-c10-tfcnn",
        "map(alpha=0.9, transfer=kd, transfer_weight=0.01)",
    ):
        assert piece in out
    rate = next(text for text in out.splitlines() if "learning_rate " in text)
    assert "0.03" in rate and "the paper" in rate
    official = idiolect("scenarios", "map-c10-tfcnn", "--preset", "official").out
    clip = next(text for text in official.splitlines() if "clip_norm" in text)
    assert "100.0" in clip and "the authors' code" in clip
    assert "Warning" not in official


def test_page_as_json(idiolect):
    found = json.loads(idiolect("scenarios", "php-femnist", "--json").out)
    assert found["expected_clients"] == 3550 and found["settings"]["clients"]["value"] == 0
    assert found["settings"]["weight_decay"] == {
        "value": 0.0,
        "origin": "inferred",
        "reason": "not stated; 1e-5 in the authors' code",
    }
    assert found["used_in_tables"] == ["fedphp-table1", "fedphp-table2"]


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (["scenarios", "map-c10"], "unknown scenario 'map-c10'; did you mean map-c10-"),
        (["scenarios", "fedper-linear-c100", "--preset", "official"], "no preset 'official'; known: paper"),
        (["run", "--scenario", "map-c10-tfcnn"], "get it with `idiolect datasets get cifar10"),
        (["compare", "--scenario", "php-femnist"], "needs the dataset femnist, which is not on this machine"),
        (["run", "--scenario", "map-o2", "--dataset", "fashion-mnist-12k"], "map-o2 cannot be run"),
    ],
)
def test_mistake_is_refused_in_one_sentence(words, piece, idiolect, refused):
    refused(idiolect(*words), piece)


def test_run_takes_the_scenario_flags_and_the_papers_method(idiolect, tmp_path):
    answer = idiolect("run", "--scenario", "map-fa-lenet", *SMALL, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    manifest = read_manifest(next((tmp_path / "out").iterdir()))
    assert manifest["method"] == "map(alpha=0.9, transfer=kd, transfer_weight=0.01)"
    spec = manifest["spec"]
    assert (spec["rounds"], spec["clients"], spec["dataset"]) == (1, 20, "fashion-mnist-12k")
    assert (spec["batch_size"], spec["weight_decay"], spec["partition"]) == (64, 1e-5, "map_incomplete")
    assert "scenario map-fa-lenet, preset paper" in manifest["notes"]


def test_warning_is_printed_and_kept_in_the_notes(idiolect, tmp_path):
    words = ["--scenario", "map-c10-tfcnn", "--methods", "fedavg,fedrs", *SMALL, "--model", "lenet_map"]
    answer = idiolect("compare", *words, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "warning: without clipping and warm-up" in answer.err
    folder = next((tmp_path / "out").iterdir())
    for run in (path for path in folder.iterdir() if path.is_dir()):
        notes = read_manifest(run)["notes"]
        assert any(note.startswith("warning: without clipping and warm-up") for note in notes)


def test_official_preset_reaches_the_run_without_warning(idiolect, tmp_path):
    words = ["--scenario", "map-c10-tfcnn", "--preset", "official", "--method", "fedavg", *SMALL]
    answer = idiolect("run", *words, "--model", "lenet_map", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "warning" not in answer.err
    spec = read_manifest(next((tmp_path / "out").iterdir()))["spec"]
    assert (spec["clip_norm"], spec["warmup_rounds"], spec["min_local_steps"]) == (100.0, 5, 5)


def test_comparison_gives_each_method_its_own_settings(idiolect, tmp_path):
    words = ["--scenario", "persfl-mnist-ds3", "--methods", "fedavg,pfedme", "--dataset", "fashion-mnist-12k"]
    words += ["--rounds", "1", "--partition", "iid", "--engine", "loop", "--device", "cpu"]
    answer = idiolect("compare", *words, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    folder = next((tmp_path / "out").iterdir())
    specs = [read_manifest(path)["spec"] for path in folder.iterdir() if path.is_dir()]
    assert {spec["method"].partition("(")[0]: spec["batch_size"] for spec in specs} == {
        "fedavg": 128,
        "pfedme": 20,
    }
