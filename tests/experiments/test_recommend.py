"""``recommend``: the rule of the answer, the plan for a budget, and three federations whose answer is known."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import idiolect
from idiolect.errors import UserError
from idiolect.experiments.recommend import judgement
from idiolect.reports import ACCURACY

CLIENTS, FEATURES = 12, 20


def federation(kind: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows of twelve clients; what is common to them decides what can help.

    ``alone``: every client follows a rule of its own and has many rows.  ``shared``: all follow one rule and have few.
    ``personal``: all rules look at the same two directions, each in its own way, and rows are few.
    """
    random = np.random.default_rng(5)
    directions = np.linalg.qr(random.normal(size=(FEATURES, 2)))[0]
    common = random.normal(size=FEATURES)
    made = {}
    for client in range(CLIENTS):
        x = random.normal(size=(240 if kind == "alone" else 60, FEATURES)).astype(np.float32)
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
    ("kind", "right"), [("alone", {"local"}), ("shared", {"fedavg"}), ("personal", None)]
)
def test_three_federations_get_the_right_answer(kind, right, tmp_path):
    found = idiolect.recommend(
        "2h", data=federation(kind), rounds=20, learning_rate=0.05, engine="loop", out=tmp_path, quiet=True
    )
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
