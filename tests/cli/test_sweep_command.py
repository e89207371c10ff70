"""``idiolect sweep`` as a user calls it."""

from __future__ import annotations

import json

import pytest


def test_sweep_shows_all_settings_and_the_best(idiolect, small, tmp_path):
    axes = ["--vary", "fedrs.alpha=0.1,0.9", "--vary", "momentum=0.0,0.9"]
    answer = idiolect("sweep", "--methods", "fedrs,fedavg", *axes, *small, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "alpha=0.1, momentum=0.0" in answer.out and "Best on validation data" in answer.out
    assert list((tmp_path / "out").glob("sweep-*/sweep.csv"))


def test_sweep_as_json(idiolect, small, tmp_path):
    answer = idiolect(
        "sweep",
        "--method",
        "fedavg",
        "--vary",
        "learning_rate=0.01..0.1:log",
        "--random",
        "2",
        *small,
        "--json",
    )
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)["tried"]
    assert len(found) == 2 and sum(one["best"] for one in found) == 1


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (["--methods", "fedavg"], "something to vary"),
        (["--methods", "fedavg", "--vary", "momentum=0,0.9", "--set", "valid=0.0"], "set valid above 0"),
        (["--methods", "fedavg", "--vary", "map.alpha=0.5"], "which is not among the methods"),
        (["--preset-grid", "nap"], "unknown grid 'nap'"),
        (["--methods", "fedavg", "--search", "foo"], "search must be one of grid, random, bayes; got 'foo'"),
        (
            ["--methods", "fedavg", "--search", "random", "--budget", "5", "--rounds", "3", "--seeds", "2"],
            "the budget of 5 rounds is less than the 6 that one trial of fedavg needs",
        ),
        (["--scenario", "map-c10-tfcnn", "--preset-grid", "map"], "idiolect datasets get cifar10"),
    ],
)
def test_mistake_is_refused_in_one_sentence(words, piece, idiolect, refused, tmp_path):
    refused(idiolect("sweep", *words, "--out", tmp_path / "out"), piece)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_sweep_by_bayes_side_by_side_and_the_comparison_of_its_best(idiolect, small, tmp_path):
    pytest.importorskip("optuna")
    search = ["--search", "bayes", "--trials", "3", "--early-stop", "median", "--jobs", "2"]
    axes = ["--vary", "learning_rate=0.01..0.2:log", "--vary", "fedrs.alpha=0.1..0.9"]
    answer = idiolect("sweep", "--methods", "fedrs,fedavg", *axes, *search, *small, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "Equal budget: 3 trials of each method, in 6 rounds." in answer.out
    words = ["--from-sweep", tmp_path / "out", "--engine", "loop", "--out", tmp_path / "compared", "--json"]
    answer = idiolect("compare", *words)
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert len(found["methods"]) == 2 and "-s1" in found["folder"]
    assert any("setting from sweep-" in note for note in found["notes"])
