"""``recommend``: the rule of the answer, the plan for a budget, and three federations whose answer is known."""

import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import idiolect
from idiolect.errors import UserError
from idiolect.experiments import Execution, Experiment
from idiolect.experiments.recommend import judgement
from idiolect.experiments.run import make_run
from idiolect.reports import ACCURACY

recommend_module = sys.modules["idiolect.experiments.recommend"]  # the package gives the function that name
FEATURES = 20
SIZES = {"alone": (12, 240), "shared": (12, 60), "personal": (40, 40)}  # clients, and rows of each


def federation(kind: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows of some clients; what is common to them decides what can help.

    ``alone``: every client follows a rule of its own and has many rows.  ``shared``: all follow one rule and have few.
    ``personal``: all rules look at the same two directions, each in its own way, and rows are few
    but clients many, so that together they find the directions.
    """
    random = np.random.default_rng(5)
    directions = np.linalg.qr(random.normal(size=(FEATURES, 2)))[0]
    common = random.normal(size=FEATURES)
    made = {}
    clients, rows = SIZES[kind]
    for client in range(clients):
        x = random.normal(size=(rows, FEATURES)).astype(np.float32)
        angle = random.uniform(0, 2 * np.pi)
        rule = {
            "alone": random.normal(size=FEATURES),
            "shared": common,
            "personal": 3 * directions @ np.array([np.cos(angle), np.sin(angle)]),
        }[kind]
        made[f"client {client}"] = (x, (x @ rule > 0).astype(int))
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "right", "settings"),
    [("alone", {"local"}, {}), ("shared", {"fedavg"}, {}), ("personal", None, {"batch_size": 8})],
)
def test_three_federations_get_the_right_answer(kind, right, settings, tmp_path):
    settings = {**settings, "rounds": 20, "learning_rate": 0.05, "engine": "loop", "quiet": True}
    found = idiolect.recommend("2h", data=federation(kind), out=tmp_path, **settings)
    expected = right or {"fedper", "ditto", "apfl", "fedavg_lu"}
    assert found.method in expected, "\n".join([*found.answer, *map(str, found.rows())])


def row(method, valid, local=(0.0, math.nan), shared=(0.0, math.nan)):
    each = {"method": method, "valid": valid}
    for other, (gain, p) in (("local", local), ("fedavg", shared)):
        each |= {
            f"gain_over_{other}": gain,
            f"p_over_{other}": p,
            f"low_over_{other}": gain,
            f"high_over_{other}": gain,
        }
    return each


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        ([row("fedper", 0.9, (0.1, 0.2), (0.1, 0.2)), row("fedavg", 0.8, (0.0, 0.9))], "local"),
        ([row("fedavg", 0.9, (0.1, 0.01)), row("fedper", 0.8, (0.0, 0.9), (-0.1, 0.2))], "fedavg"),
        ([row("fedper", 0.9, (0.2, 0.01), (0.1, 0.2)), row("fedavg", 0.8, (0.1, 0.01))], "fedavg"),
        ([row("fedper", 0.9, (0.2, 0.01), (0.1, 0.01)), row("fedavg", 0.8, (0.1, 0.01))], "fedper"),
        ([row("fedper", 0.9, (0.2, 0.01), (0.1, 0.2)), row("fedavg", 0.8, (0.1, 0.2))], "fedper"),
        ([row("fedavg", 0.5, (-0.2, 0.01)), row("fedper", 0.6, (-0.1, 0.01), (0.1, 0.01))], "local"),
    ],
)
def test_the_simplest_kind_wins_unless_another_is_shown_to_be_better(rows, answer):
    table = pd.DataFrame([*rows, row("local", 0.8, shared=(0.0, 0.9))])
    assert judgement(table, ACCURACY)[0] == answer


@pytest.mark.parametrize("budget", ["soon", "0s", "20", "-3m"])
def test_a_budget_that_is_no_time_is_refused(budget, tmp_path):
    with pytest.raises(UserError, match="budget must be a time such as 90s, 20m or 2h"):
        idiolect.recommend(budget, out=tmp_path)


def test_a_budget_that_is_too_short_says_what_is_needed(tmp_path):
    with pytest.raises(UserError, match=r"a budget of 1 s is too short: .* give budget=\d+m"):
        idiolect.recommend("1s", data=federation("shared"), engine="loop", out=tmp_path, quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_rates_and_seeds_end_where_the_machine_turns_slow(tmp_path, monkeypatch):
    """Every run takes an hour by the clock, of a budget of five: one rate for each method, and no seed beyond three."""
    hours = [0]

    def make_slowly(*given):
        hours[0] += given[0].rounds > recommend_module.PILOT_ROUNDS
        return make_run(*given)

    monkeypatch.setattr(recommend_module, "make_run", make_slowly)
    monkeypatch.setattr(recommend_module.time, "monotonic", lambda: hours[0] * 3600.0)
    settings = {"data": federation("shared"), "rounds": 4, "engine": "loop", "quiet": True}
    found = idiolect.recommend("5h", methods=[], out=tmp_path, **settings)
    assert len(list(found.folder.glob("*-s0"))) == 2  # one rate of two methods, and no more than that
    assert set(found.table["seeds"]) == {3}
    assert any("longer than the budget of 300.0 min" in sentence for sentence in found.answer)


def test_a_round_is_not_taken_for_the_start_of_a_process(tmp_path, monkeypatch):
    """Run after run takes 100 s to start and 1 s a round; a finished run is not taken for a fast one."""
    clock = [0.0]

    def make(one, execution):
        clock[0] += 100 + one.rounds
        return SimpleNamespace(rounds=pd.DataFrame({"seconds": [1.0] * one.rounds}))

    monkeypatch.setattr(recommend_module, "make_run", make)
    monkeypatch.setattr(recommend_module.time, "monotonic", lambda: clock[0])
    assert recommend_module._cost(Experiment(), Execution(out=tmp_path)) == (101.0, 100.0, 1.0)
    assert list(tmp_path.iterdir()) == []


def test_a_recommendation_is_written_with_its_evidence(tmp_path):
    settings = {
        "data": federation("shared"),
        "rounds": 1,
        "learning_rate": 0.05,
        "engine": "loop",
        "quiet": True,
    }
    found = idiolect.recommend("5m", methods=["ditto"], out=tmp_path, **settings)
    written = json.loads((found.folder / "recommendation.json").read_text("utf-8"))
    assert written["method"] == found.method and written["answer"] == found.answer
    assert {row["method"] for row in written["table"]} == {"local", "fedavg", "ditto"}
    assert all(row["seeds"] >= 3 and 0 <= row["valid"] <= 1 for row in written["table"])
    assert (found.folder / "table.md").is_file()
    assert "<td>Ditto</td>" in found._repr_html_()
