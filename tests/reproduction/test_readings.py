"""What is read off a run: hand-made rows, results computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reproduction.papers import MetricReading
from idiolect.reproduction.papers.metric_reading import (
    chosen_mixture,
    means_by_client,
    means_by_round,
    read_values,
    round_window,
)
from idiolect.reproduction.points_from_runs import LINE_SUMMARIES, POINTS_OF_RUN, client_gains

COLUMNS = ["round", "client", "split", "predictor", "moment", "population", "metric", "value"]
SELECTED = MetricReading(
    metric="accuracy", split="test", population="selected", predictor="after-local", moment="after"
)


def _run(rows: list[tuple], rounds: int = 4, **manifest) -> Run:
    known = {"name": "r", "spec": {"rounds": rounds}, "headline": "global", **manifest}
    counted = pd.DataFrame({"round": range(1, rounds + 1)})
    return Run(known, counted, pd.DataFrame(rows, columns=COLUMNS))


def _rows(numbers: dict[tuple[int, int], float], predictor: str, moment: str, population: str) -> list[tuple]:
    return [
        (round, client, "test", predictor, moment, population, "accuracy", number)
        for (round, client), number in numbers.items()
    ]


@pytest.fixture
def zigzag() -> Run:
    """Clients 0 and 1, selected in rounds 1 and 3, 1 in round 2 too; what else a run records is noise."""
    after = {(1, 0): 0.8, (1, 1): 0.6, (2, 1): 0.7, (3, 0): 0.9, (3, 1): 0.5}
    before = {(1, 0): 0.1, (1, 1): 0.2, (2, 1): 0.3, (3, 0): 0.6, (3, 1): 0.4}
    noise = dict.fromkeys(after, 0.99)
    return _run(
        _rows(after, "after-local", "after", "selected")
        + _rows(before, "global", "before", "selected")
        + _rows(noise, "global", "after", "selected")
        + _rows(noise, "after-local", "before", "all"),
        rounds=3,
    )


@pytest.mark.parametrize(
    ("text", "last", "expected"),
    [
        ("last", 150, (150, 150)),
        ("last 10", 1000, (991, 1000)),
        ("around 200", 1000, (190, 210)),
        ("round 1", 4, (1, 1)),
    ],
)
def test_window(text, last, expected):
    assert round_window(text, last) == expected


def test_mean_over_the_selected_is_a_mean_of_rounds(zigzag):
    """Round means 0.7, 0.7, 0.7; over clients it would be (0.85 + 0.6) / 2 = 0.725."""
    assert means_by_round(zigzag, SELECTED)["value"].tolist() == pytest.approx([0.7, 0.7, 0.7])
    assert read_values(zigzag, replace(SELECTED, rounds="last 3")).tolist() == pytest.approx([0.7, 0.7, 0.7])
    assert read_values(zigzag, SELECTED).tolist() == pytest.approx([0.7])


def test_by_client_averages_the_window():
    everyone = MetricReading(
        metric="accuracy",
        split="test",
        population="all",
        predictor="global",
        moment="before",
        rounds="last 2",
    )
    run = _run(
        _rows({(3, 0): 0.2, (4, 0): 0.4, (3, 1): 0.6, (4, 1): 1.0, (2, 0): 0.0}, "global", "before", "all")
    )
    assert means_by_client(run, everyone).to_dict() == pytest.approx({0: 0.3, 1: 0.8})


def test_what_was_not_measured_is_refused_by_name(zigzag):
    missing = MetricReading(metric="ece", split="test", population="all", predictor="global", moment="before")
    with pytest.raises(UserError, match=r"run r has no ece of global on test \(all clients, before\)"):
        means_by_client(zigzag, missing)
    early = MetricReading(
        **{**vars(SELECTED), "rounds": "around 200"},
    )
    with pytest.raises(UserError, match="run r was not evaluated in rounds 190 to 210"):
        read_values(zigzag, early)


def test_zigzag_pairs_the_download_with_what_the_client_makes_of_it(zigzag):
    points = POINTS_OF_RUN["zigzag"](zigzag, SELECTED).set_index(["client", "round"])
    assert points.loc[(0, 3)].tolist() == pytest.approx([0.6, 0.9, 0.3])
    assert points.loc[(1, 3), "value"] == pytest.approx(0.1)
    assert len(points) == 5


def test_degradation_by_hand(zigzag):
    """Round 2: client 1, 0.3 - 0.6 = -0.3.  Round 3: client 0, 0.6 - 0.8 = -0.2; client 1, 0.4 - 0.7 = -0.3."""
    points = POINTS_OF_RUN["degradation"](zigzag, SELECTED)
    assert points["round"].tolist() == [2, 3]
    assert points["value"].tolist() == pytest.approx([-0.3, -0.25])
    assert LINE_SUMMARIES["degradation"][1](points) == pytest.approx(-0.275)


def test_degradation_of_an_inherited_model_is_zero():
    numbers = {(1, 0): 0.5, (2, 0): 0.7, (3, 0): 0.8}
    held = {(1, 0): 0.3, (2, 0): 0.5, (3, 0): 0.7}
    rows = _rows(numbers, "companion", "after", "selected") + _rows(held, "companion", "before", "selected")
    run = _run(rows, 3, headline="companion")
    reading = replace(SELECTED, predictor="companion")
    assert POINTS_OF_RUN["degradation"](run, reading)["value"].tolist() == pytest.approx([0.0, 0.0])


def test_degradation_needs_a_client_selected_twice_and_every_round_observed():
    numbers = {(1, 0): 0.5, (2, 1): 0.7}
    rows = _rows(numbers, "after-local", "after", "selected") + _rows(numbers, "global", "before", "selected")
    with pytest.raises(UserError, match="selected no client twice"):
        POINTS_OF_RUN["degradation"](_run(rows, 2), SELECTED)
    with pytest.raises(UserError, match="run it with observe=always"):
        POINTS_OF_RUN["degradation"](_run(rows, 3), SELECTED)


def test_profile_runs_over_the_mixing_coefficients():
    rows = []
    for step in range(11):
        numbers = {(4, 0): step / 10, (4, 1): 0.5, (3, 0): 9.0, (3, 1): 9.0}
        rows += _rows(numbers, f"mix({step / 10:.1f})", "before", "all")
    reading = MetricReading(
        metric="accuracy", split="test", population="all", predictor="mix(", moment="before"
    )
    points = POINTS_OF_RUN["profile"](_run(rows), reading)
    assert points["alpha"].tolist() == pytest.approx([step / 10 for step in range(11)])
    assert points["value"].iloc[4] == pytest.approx(0.45)
    assert points["sd"].iloc[10] == pytest.approx(0.25)
    assert LINE_SUMMARIES["profile"][1](points) == pytest.approx(0.75)


def test_gains_are_new_less_old_and_losers_are_counted():
    old = pd.DataFrame({"client": [0, 1, 2], "value": [0.5, 0.5, 0.5]})
    new = pd.DataFrame({"client": [2, 1, 0], "value": [0.4, 0.6, 0.5]})
    found = client_gains(old, new)
    assert dict(zip(found["client"], found["value"], strict=True)) == pytest.approx({0: 0.0, 1: 0.1, 2: -0.1})
    assert LINE_SUMMARIES["change"][1](found) == 1.0


def test_chosen_mixture_is_read_from_the_manifest():
    run = _run([], choices={"mix(oracle)": "mix(0.3)"})
    assert chosen_mixture(run, "mix(oracle)") == 0.3
    with pytest.raises(UserError, match=r"does not say which mixture mix\(validated\) is"):
        chosen_mixture(run, "mix(validated)")
