"""Searches: what is suggested and stopped, equal budgets, and sweeps that go on as if nobody had stopped them."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from idiolect.errors import UserError
from idiolect.experiments import compare, sweep
from idiolect.experiments.sweep.axes import parse_axis
from idiolect.experiments.sweep.best_settings import read_sweep
from idiolect.experiments.sweep.optuna_search import KnownTrial, should_stop, suggest
from idiolect.experiments.sweep.tables import TrialResult, budget_note, budget_points, with_best
from idiolect.experiments.sweep.trial_book import TrialBook
from idiolect.reports import ACCURACY, JudgedMetric

from ..child_process import child_process

LOOP = {"engine": "loop", "device": "cpu", "quiet": True}
AXES = [
    parse_axis(text)
    for text in ("learning_rate=0.001..1.0:log", "batch_size=4..16", "fedprox.weight=0.1,1.0")
]


@pytest.fixture
def optuna() -> None:
    pytest.importorskip("optuna")


def _known(count: int, seed: int = 0) -> list[KnownTrial]:
    """Returns trials whose value falls with the distance of the learning rate from 0.1, as logarithms."""
    found: list[KnownTrial] = []
    for number in range(count):
        point = suggest(AXES, 1, found, number, seed)
        value = -abs(math.log10(point["learning_rate"]) + 1) if number % 4 else None
        found.append(KnownTrial(number, point, value=value, state="done" if value is not None else "refused"))
    return found


@pytest.mark.usefixtures("optuna")
def test_suggestion_depends_on_the_trials_and_its_number_alone():
    known = _known(12)
    assert suggest(AXES, 1, known, 12, 0) == suggest(AXES, 1, [replace(one) for one in known], 12, 0)
    assert suggest(AXES, 1, known, 12, 0) != suggest(AXES, 1, known, 12, 1)
    better = [replace(one, value=-one.value) if one.value else one for one in known]
    assert suggest(AXES, 1, known, 12, 0) != suggest(AXES, 1, better, 12, 0)
    for one in known:
        assert 0.001 <= one.point["learning_rate"] <= 1 and one.point["batch_size"] in range(4, 17)
        assert one.point["fedprox.weight"] in (0, 1)


@pytest.mark.usefixtures("optuna")
def test_search_learns_from_its_trials():
    late = [abs(math.log10(one.point["learning_rate"]) + 1) for one in _known(40)[20:]]
    assert sum(late) / len(late) < 0.6  # 0.83 if nothing were learnt


@pytest.mark.usefixtures("optuna")
@pytest.mark.parametrize("rule", ["median", "halving"])
def test_trial_that_falls_behind_is_stopped_and_a_good_one_goes_on(rule):
    for value, stops in ((0.1, True), (0.99, False)):
        known: list[KnownTrial] = []
        for number in range(6):
            one = KnownTrial(number, curve={2: 0.5 + number / 20})
            known.append(one)
            should_stop(rule, known, one, 2)
            one.state, one.value = "done", 0.9
        trial = KnownTrial(6, curve={2: value})
        assert should_stop(rule, [*known, trial], trial, 2) is stops
        assert not should_stop("none", [*known, trial], trial, 2)


def test_stopped_trial_is_never_the_best_and_the_budget_is_stated():
    tried = with_best(
        [
            TrialResult("a", "1", "a", 1, 0.9, stopped=2, rounds=2),
            TrialResult("a", "2", "a", 1, 0.5, number=1, rounds=10),
            TrialResult("a", "3", "a", 1, 0.7, number=2, rounds=10),
            TrialResult("b", "1", "b", failed="no", rounds=10),
            TrialResult("b", "2", "b", 1, 0.6, number=1, rounds=10),
            TrialResult("b", "3", "b", 1, 0.4, number=2, rounds=10),
        ]
    )
    assert [one.best for one in tried] == [False, False, True, False, True, False]
    assert budget_note(tried) == (
        "Equal budget: 3 trials of each method, in 22 to 30 rounds. 1 of 6 trials were stopped early."
    )
    spent = [tuple(row) for row in budget_points(tried).itertuples(index=False)]
    assert spent == [("a", 2, 12, 0.5), ("a", 3, 22, 0.7), ("b", 2, 20, 0.6), ("b", 3, 30, 0.6)]
    assert "The budgets differ: a 3 trials in 22 rounds, b 2 trials in 20 rounds." in budget_note(tried[:-1])
    loss = JudgedMetric("rmse", False, False)
    lower = [replace(one, metric=loss if one.can_be_best else ACCURACY) for one in tried]
    assert budget_points(lower)["best"].tolist() == [0.5, 0.5, 0.6, 0.4]


@pytest.mark.parametrize(
    ("asked", "piece"),
    [
        ({"search": "bayes"}, "the search bayes needs --trials N, or --budget ROUNDS"),
        ({"search": "grid", "trials": 3, "vary": ["momentum=0,1"]}, "a grid tries all combinations"),
        (
            {"search": "greedy", "trials": 3, "vary": ["momentum=0,1"]},
            "search must be one of grid, random, bayes",
        ),
        ({"search": "random", "trials": 3, "early_stop": "soon"}, "early_stop must be one of none, median"),
        ({"draws": 3, "trials": 2, "vary": ["momentum=0,1"]}, "leave search and trials out, or draws"),
    ],
)
def test_search_that_makes_no_sense_is_refused(asked, piece, tiny, tmp_path):
    with pytest.raises(UserError, match=piece):
        sweep(["fedavg"], experiment=tiny, out=tmp_path, **asked)
    assert not list(tmp_path.iterdir())


def test_budget_of_rounds_is_kept_and_the_learning_rate_varied(tiny, tmp_path):
    done = sweep(["fedavg", "local"], search="random", budget=7, experiment=tiny, out=tmp_path, **LOOP)
    assert [one.name for one in done.tried] == ["fedavg"] * 3 + [
        "local"
    ] * 3  # a fourth of 2 rounds does not fit
    rates = [one.varied["learning_rate"] for one in done.tried]
    assert len(set(rates)) == 6 and all(0.1 <= rate / tiny.learning_rate <= 10 for rate in rates)
    assert "Equal budget: 3 trials of each method, in 6 rounds." in (done.folder / "sweep.md").read_text()


def test_comparison_from_a_sweep_runs_the_best_settings_on_other_seeds(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[compare.__module__], "write_report", lambda *given: None)
    vary = ["learning_rate=0.01,0.2", "ditto.weight=0.1,1.0"]
    done = sweep(["fedavg", "ditto"], vary=vary, experiment=tiny, seeds=(3,), out=tmp_path, **LOOP)
    together = compare(from_sweep=tmp_path, out=tmp_path / "c", **LOOP)
    assert [run.manifest["seed"] for run in together.runs] == [4, 4]
    for run, name in zip(together.runs, ("fedavg", "ditto"), strict=True):
        best, spec = done.best[name], run.manifest["spec"]
        assert spec["learning_rate"] == best.varied["learning_rate"] and spec["rounds"] == tiny.rounds
        assert spec["method"] == best.method
        (note,) = [
            note for note in run.manifest["notes"] if note.startswith(f"setting from {done.folder.name}")
        ]
        assert f"trial {best.number + 1} of " in note and "with seed 3" in note
    (tuned,) = compare(["ditto"], from_sweep=done.folder, seeds=[3], out=tmp_path / "d", **LOOP).runs
    assert "seed 3 is among those that the setting was tuned on" in tuned.manifest["notes"]
    with pytest.raises(UserError, match=r"unknown method of .*; did you mean fedavg"):
        compare(["fedavgg"], from_sweep=done.folder, out=tmp_path, **LOOP)
    with pytest.raises(UserError, match="holds no finished sweep"):
        read_sweep(tmp_path / "c")


BEST = {"name": "fedavg", "trial": 0, "trials": 1, "rounds": 1, "spec": {"method": "fedavg"}}


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("{", "it is no JSON document"),
        ("[]", r"it is no JSON document \(it is not an object of JSON\)"),
        (json.dumps({"best": [BEST], "seeds": [], "search": "grid"}), "it does not hold the best settings"),
        (json.dumps({"best": [{**BEST, "spec": 3}], "seeds": [0], "search": "grid"}), "it does not hold"),
    ],
)
def test_damaged_sweep_is_refused_in_one_sentence(text, piece, tmp_path):
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(UserError, match=f"sweep.json is damaged: {piece}.*run the sweep again"):
        read_sweep(tmp_path)


def test_damaged_book_is_refused_by_name(tmp_path):
    (tmp_path / "trials.json").write_text('{"format": 1, "trials": [{"num')
    with pytest.raises(UserError, match=r"trials\.json cannot be read .*; remove it"):
        TrialBook.open(tmp_path)


PROGRAM = """
import sys
import idiolect
idiolect.sweep(["fedavg", "map"], vary=["learning_rate=0.003..1.0:log", "map.alpha=0.1..1.0"], search=sys.argv[2],
    trials=8, early_stop=sys.argv[3], jobs=int(sys.argv[4]), out=sys.argv[1], engine="loop", device="cpu",
    dataset="synthetic(n_clients=4, samples_per_client=40, n_features=8, n_classes=3)", partition="by_id", clients=4,
    model="mlpnet(hidden=8)", rounds=12, checkpoint_every=3, evaluate_every=2, participation_rate=1.0)
"""


def _outcome(out: Path) -> tuple[list[dict[str, str]], object, object]:
    (folder,) = out.glob("sweep-*")
    rows = list(csv.DictReader((folder / "sweep.csv").read_text().splitlines()))
    return (
        rows,
        json.loads((folder / "trials.json").read_text()),
        json.loads((folder / "sweep.json").read_text()),
    )


@pytest.mark.usefixtures("optuna")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "early_stop", "jobs"), [("bayes", "median", 1), ("bayes", "halving", 1), ("random", "none", 2)]
)
def test_sweep_stopped_at_any_moment_ends_as_one_that_was_not(search, early_stop, jobs, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def start(out: Path):
        command = [sys.executable, "-c", PROGRAM, str(out), search, early_stop, str(jobs)]
        return child_process(command, env=environment, stderr=-3, cwd=Path.cwd())

    with start(tmp_path / "whole") as child:
        assert child.wait(300) == 0
    draw, stops = random.Random(7), 0
    for turn in range(12):
        with start(tmp_path / "stopped") as child:
            while child.poll() is None and not list((tmp_path / "stopped").glob("sweep-*")):
                time.sleep(0.02)
            time.sleep(draw.uniform(0.0, 2.0 if jobs == 1 else 6.0))
            if child.poll() is not None:
                assert child.returncode == 0
                break
            child.send_signal(signal.SIGINT if turn % 2 else signal.SIGKILL)
            child.wait(60)
            stops += 1
    else:
        with start(tmp_path / "stopped") as child:
            assert child.wait(300) == 0
    assert stops >= 2
    assert _outcome(tmp_path / "stopped") == _outcome(tmp_path / "whole")
    assert not list((tmp_path / "stopped").glob("*.partial"))
