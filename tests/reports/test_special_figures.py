"""Pictures that only some runs can give, checked against numbers computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from idiolect.errors import UserError
from idiolect.records import RoundBuffer, RowBuffer, RowKind, Run, RunWriter, read_run
from idiolect.reports import (
    bars_figure,
    before_after_data,
    before_after_figure,
    calibration_data,
    calibration_figure,
    change_data,
    change_figure,
    clients_heat_data,
    degradation_data,
    degradation_figure,
    heat_figure,
    lines_figure,
    profile_data,
    profile_figure,
    ranks_data,
    ranks_figure,
    settings_figure,
    special_pictures,
    sweep_figure,
    targets_data,
    targets_figure,
    teachers_data,
    teachers_figure,
    write_report,
)
from idiolect.reports.page.page_data import extras_part, page_data

Row = tuple[
    int, int, str, str, str, str, str, float
]  # round, client, split, predictor, moment, population, ...
Write = Callable[..., Run]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A run from rows; its rounds cost 1, 2, 3, ... MB down and half of it up."""

    def make(
        label: str,
        told: list[Row],
        headline: str = "global",
        seed: int = 0,
        rounds: int = 3,
        data_seed: int | None = None,
    ) -> Run:
        rows, costs = RowBuffer(), RoundBuffer()
        for row in told:
            rows.add(*row[:2], RowKind(*row[2:7]), row[7])
        for number in range(1, rounds + 1):
            costs.add(number, 1.0, 2, 1_000_000 * number, 500_000 * number, 0.5)
        facts = {
            "method": label.lower(),
            "label": label,
            "seed": seed,
            "headline": headline,
            "spec": {"rounds": rounds},
            "data_seed": seed if data_seed is None else data_seed,
        }
        name = f"{label}-s{seed}" if data_seed is None else f"{label}-d{data_seed}-s{seed}"
        return read_run(RunWriter(tmp_path, name, facts).finish(costs.table(), rows.table()))

    return make


def accuracy(
    number: int, client: int, value: float, predictor: str, moment: str, population: str = "all"
) -> Row:
    return number, client, "test", predictor, moment, population, "accuracy", value


@pytest.fixture
def observed(write: Write) -> Run:
    """One client, selected three times: downloads 0.2, 0.3, 0.5 and makes 0.6, 0.8, 0.9 of them."""
    told = []
    for number, (before, after) in enumerate([(0.2, 0.6), (0.3, 0.8), (0.5, 0.9)], 1):
        told.append(accuracy(number, 0, before, "global", "before", "selected"))
        told.append(accuracy(number, 0, after, "after-local", "after", "selected"))
        told.append(accuracy(number, 0, before, "global", "after", "selected"))
        told.append(accuracy(number, 0, before, "global", "before"))
    return write("FedAvg", told)


def test_zigzag_goes_up_by_training_and_down_by_the_download(observed: Run) -> None:
    data = before_after_data([observed])
    assert data["before"].tolist() == pytest.approx([20, 30, 50])
    assert data["after"].tolist() == pytest.approx([60, 80, 90])
    (axes,) = before_after_figure(data).axes
    solid = [line.get_ydata() for line in axes.lines if line.get_linestyle() == "-"]
    dotted = [line.get_ydata() for line in axes.lines if line.get_linestyle() == ":"]
    assert [list(y) for y in solid] == [pytest.approx(pair) for pair in ([20, 60], [30, 80], [50, 90])]
    assert [list(y) for y in dotted] == [pytest.approx(pair) for pair in ([60, 30], [80, 50])]


def test_degradation_is_the_download_less_what_was_made_before(observed: Run) -> None:
    data = degradation_data([observed])
    main = data[data["panel"] == "Main model"]
    assert main["x"].tolist() == [2, 3] and main["value"].tolist() == pytest.approx([-30, -30])
    deployed = data[data["panel"] != "Main model"]
    assert deployed["value"].tolist() == pytest.approx([10, 20])
    assert degradation_figure(data).axes[0].get_title(loc="left") == "Main model"


def test_runs_that_were_not_observed_are_left_out_by_themselves(observed: Run, write: Write) -> None:
    silent = write("Silent", [accuracy(3, 0, 0.5, "global", "before")])
    assert set(degradation_data([observed, silent])["line"]) == {"FedAvg"}
    assert set(before_after_data([silent, observed])["panel"]) == {"FedAvg"}
    for make in (
        degradation_data,
        before_after_data,
        profile_data,
        teachers_data,
        calibration_data,
        change_data,
    ):
        with pytest.raises(UserError):
            make([silent])
    assert set(special_pictures([silent])) == {"heat-map", "targets"}


@pytest.fixture
def mixed(write: Write) -> Run:
    told = [(3, -1, "server", "global", "before", "all", "accuracy", 0.4)]
    for alpha, pair in {0.0: (0.2, 0.4), 0.5: (0.8, 0.6), 1.0: (0.5, 0.5)}.items():
        told += [accuracy(3, client, value, f"mix({alpha})", "before") for client, value in enumerate(pair)]
    return write("SuPerFed", told, headline="mix(0.5)")


def test_profile_has_mean_and_sd_over_clients_and_names_its_best_an_oracle(mixed: Run) -> None:
    data = profile_data([mixed])
    assert data["alpha"].tolist() == [0, 0.5, 1] and data["value"].tolist() == pytest.approx([30, 70, 50])
    assert data["sd"].tolist() == pytest.approx([200**0.5, 200**0.5, 0]) and data[
        "server"
    ].tolist() == pytest.approx([40] * 3)
    (axes,) = profile_figure(data).axes
    assert [text.get_text() for text in axes.texts] == ["best 70.0 at 0.5 (oracle), global 40.0"]


def test_teachers_are_averaged_over_seeds(write: Write) -> None:
    runs = [
        write(
            "PersFL",
            [(3, c, "none", "companion", "end", "all", "teacher round", 1.0 + c + seed) for c in (0, 1)],
            "companion",
            seed,
        )
        for seed in (0, 1)
    ]
    data = teachers_data([run._replace(manifest={**run.manifest, "data_seed": 0}) for run in runs])
    assert data["value"].tolist() == [1.5, 2.5]
    (axes,) = teachers_figure(data).axes
    assert [patch.get_height() for patch in axes.patches] == [1.5, 2.5]
    redrawn = teachers_data(runs)
    assert redrawn["value"].tolist() == [1.0, 2.0, 2.0, 3.0]
    assert redrawn["panel"].tolist() == ["Data seed 0", "Data seed 0", "Data seed 1", "Data seed 1"]


def test_cost_of_a_target_is_what_was_spent_when_every_seed_reached_it(write: Write) -> None:
    curves = {0: (0.2, 0.5, 0.6), 1: (0.5, 0.5, 0.7)}
    runs = [
        write("A", [accuracy(n, 0, value, "global", "before") for n, value in enumerate(curve, 1)], seed=seed)
        for seed, curve in curves.items()
    ]
    end = write("B", [accuracy(3, 0, 0.9, "global", "end")])
    data = targets_data([*runs, end], [0.5, 0.65, 0.8])
    found = data.set_index(["panel", "line", "x"])["value"]
    assert found["Rounds", "A", 50.0] == 1.5
    assert found["Megabytes down", "A", 50.0] == pytest.approx((3 + 1) / 2)
    assert found["Megabytes up", "A", 50.0] == pytest.approx(1.0)
    assert ("Rounds", "A", 65.0) not in found.index
    assert found["Rounds", "B", 80.0] == 3 and found["Megabytes down", "B", 80.0] == 6
    assert len(targets_figure(data).axes) == 3


def test_cost_of_a_target_is_averaged_within_partitions_first(write: Write) -> None:
    reached = {(7, 0): 1, (7, 1): 3, (8, 0): 3}  # the round of each data seed and seed
    runs = [
        write(
            "A",
            [accuracy(n, 0, 0.9 if n >= first else 0.1, "global", "before") for n in (1, 2, 3)],
            seed=seed,
            data_seed=data_seed,
        )
        for (data_seed, seed), first in reached.items()
    ]
    found = targets_data(runs, [0.5]).set_index("panel")["value"]
    assert found["Rounds"] == pytest.approx((2 + 3) / 2) and found["Megabytes down"] == pytest.approx(
        (3.5 + 6) / 2
    )


def test_change_histogram_counts_clients_and_names_the_losers(write: Write) -> None:
    old = write("FedAvg", [accuracy(3, c, 0.5, "global", "before") for c in range(4)])
    new = write("MAP", [accuracy(3, c, v, "global", "before") for c, v in enumerate((0.4, 0.6, 0.7, 0.9))])
    data = change_data([old, new])
    assert data["value"].tolist() == pytest.approx([-10, 10, 20, 40])
    (axes,) = change_figure(data, bins=8).axes
    assert axes.get_title(loc="left") == "MAP against FedAvg\n1 of 4 clients lose"
    assert [text.get_text() for text in axes.texts] == ["1"] * 4
    assert sum(patch.get_height() for patch in axes.patches) == 4
    assert len({patch.get_facecolor() for patch in axes.patches}) == 2


def test_heat_map_has_every_client_under_every_method(write: Write) -> None:
    runs = [
        write(label, [accuracy(3, c, level + 0.1 * c, "global", "before") for c in range(3)])
        for label, level in (("A", 0.2), ("B", 0.5))
    ]
    figure = heat_figure(clients_heat_data(runs))
    image = figure.axes[0].images[0].get_array()
    assert image.tolist() == [pytest.approx([20, 30, 40]), pytest.approx([50, 60, 70])]
    bold = [text.get_text() for text in figure.axes[0].texts if text.get_fontweight() == "bold"]
    assert bold == ["70.0"]


def test_calibration_shows_the_mean_and_sd_over_clients(write: Write) -> None:
    told = [(3, c, "test", "global", "before", "all", "ece", v) for c, v in enumerate((0.1, 0.3))]
    data = calibration_data([write("A", told)])
    assert data[["value", "sd"]].to_numpy().tolist() == [[pytest.approx(0.2), pytest.approx(0.02**0.5)]]
    assert len(calibration_figure(data).axes) == 1


def test_sweep_picture_rings_what_was_chosen_and_names_what_is_no_number() -> None:
    points = pd.DataFrame(
        [
            ("lr", "MAP", 0.001, 50, False),
            ("lr", "MAP", 0.1, 70, True),
            ("rule", "MAP", "freq", 50, False),
            ("rule", "MAP", "max", 70, True),
        ],
        columns=["panel", "line", "x", "value", "best"],
    )
    first, second = sweep_figure(points).axes
    assert first.get_xscale() == "log" and second.get_xscale() == "linear"
    assert [label.get_text() for label in second.get_xticklabels()] == ["freq", "max"]
    rings = [line for line in first.lines if line.get_fillstyle() == "none"]
    assert [list(line.get_ydata()) for line in rings] == [[70]]


def test_settings_are_told_apart_by_colour_and_shape() -> None:
    points = pd.DataFrame(
        {
            "colour": ["a=1", "a=1", "a=2"],
            "shape": ["b=1", "b=2", "b=1"],
            "aggregation": [1, 2, 3],
            "personalisation": [4, 5, 6],
        }
    )
    figure = settings_figure(points)
    looks = [(line.get_color(), line.get_marker()) for line in figure.axes[0].lines]
    assert len(set(looks)) == 3 and looks[0][0] == looks[1][0] and looks[0][1] == looks[2][1]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a=1", "a=2", "b=1", "b=2"]


def test_upright_line_stands_where_it_is_asked_for() -> None:
    points = pd.DataFrame({"panel": ["p", "p"], "line": ["a", "a"], "x": [0, 10], "value": [1.0, 2.0]})
    figure = lines_figure(points, "Round", mark=4)
    assert list(figure.axes[0].lines[-1].get_xdata()) == [4, 4]


def test_bars_of_two_lines_stand_side_by_side() -> None:
    points = pd.DataFrame({"panel": "p", "line": ["a", "b"], "x": [7, 7], "value": [1.0, 2.0]})
    (axes,) = bars_figure(points, "x", "y").axes
    one, other = axes.patches
    assert one.get_x() + one.get_width() == pytest.approx(other.get_x())


def test_lines_keep_their_colour_from_figure_to_figure(mixed: Run, observed: Run) -> None:
    special = special_pictures([observed, mixed])
    colours = [c.lines[0].get_color() for c in special["profile"].figure.axes[0].containers]
    targets = {line.get_label(): line.get_color() for line in special["targets"].figure.axes[0].lines}
    assert colours == [targets["SuPerFed"]] and targets["FedAvg"] != targets["SuPerFed"]


def test_special_pictures_come_in_the_format_named_with_their_numbers(mixed: Run, tmp_path: Path) -> None:
    names = {path.name for path in write_report([mixed], tmp_path / "r", ["svg", "csv"], special=True)}
    assert {"profile.svg", "profile.csv", "heat-map.svg", "targets.csv"} <= names
    assert not any(name.startswith(("teachers", "degradation", "zigzag")) for name in names)


@pytest.fixture
def scenes(make_run: Write) -> list[Run]:
    """Three methods in two scenes: A is best in both, B and C change places; D is in one scene alone."""
    scores = {"digits": {"A": 0.9, "B": 0.8, "C": 0.7, "D": 0.6}, "letters": {"A": 0.9, "B": 0.5, "C": 0.6}}
    return [
        make_run(label, personal={(4, "after"): [level, level]}, dataset=dataset)
        for dataset, found in scores.items()
        for label, level in found.items()
    ]


def test_methods_are_ranked_over_the_scenes_that_have_them_all(scenes: list[Run]) -> None:
    data = ranks_data(scenes)
    assert list(data.index) == ["digits", "letters"] and list(data) == ["A", "B", "C"]
    assert data.loc["letters"].tolist() == pytest.approx([0.9, 0.5, 0.6])
    part = page_data(scenes)["ranks"]
    assert dict(zip(part["methods"], part["ranks"], strict=True)) == {"A": 1.0, "B": 2.5, "C": 2.5}
    title = ranks_figure(data).axes[0].get_title(loc="left")
    assert title.startswith("Mean ranks over 2 scenarios")
    assert "ranks" in special_pictures(scenes)


def test_one_scene_has_no_ranks(scenes: list[Run]) -> None:
    assert page_data(scenes[:4])["ranks"] is None and "ranks" not in special_pictures(scenes[:4])


def test_users_have_their_mean_and_sd_below_them(write: Write, tmp_path: Path) -> None:
    runs = [
        write(label, [accuracy(3, client, value, "global", "before") for client, value in enumerate(values)])
        for label, values in (("A_1", (0.2, 0.6)), ("B", (0.5, 0.5)))
    ]
    write_report(runs, tmp_path / "r", ["md", "csv", "tex"], special=True)
    lines = (tmp_path / "r" / "users.md").read_text().splitlines()
    assert lines[4:8] == [
        "| 0 | 50.0 | 20.0 |",
        "| 1 | 50.0 | 60.0 |",
        "| Avg | 50.0 | 40.0 |",
        "| SD | 0.0 | 28.3 |",
    ]
    table = pd.read_csv(tmp_path / "r" / "users.csv", index_col="user")
    assert table.loc["SD", "A_1"] == pytest.approx(0.08**0.5)
    latex = (tmp_path / "r" / "users.tex").read_text()
    assert r"User & B & A\_1 \\" in latex and r"SD & 0.0 & 28.3 \\" in latex


def test_page_has_the_same_numbers_as_the_pictures(mixed: Run, observed: Run) -> None:
    found = extras_part([observed, mixed], ["FedAvg", "SuPerFed"])
    assert set(found) == {"targets", "degradation", "profile"}
    (panel,) = found["profile"]
    assert panel["lines"][0] is None and panel["lines"][1]["value"] == pytest.approx([30, 70, 50])
    main = found["degradation"][0]
    assert main["title"] == "Main model" and main["lines"][0]["value"] == pytest.approx([-30, -30])
