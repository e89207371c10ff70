"""What the figures show."""

from __future__ import annotations

import numpy as np
import pytest

from idiolect.methods.catalogue import METHODS
from idiolect.records import Run
from idiolect.reports import clients_data, clients_figure, curves_data, curves_figure, partition_figure
from idiolect.reports.figures.style import LOOKS, appearance, appearances


def test_curves_average_seeds_by_round(make_run) -> None:
    runs = [
        make_run(
            "MAP", seed, {(1, "after"): [0.2, 0.4], (2, "after"): [0.5 + 0.1 * seed]}, {1: 0.3 + 0.2 * seed}
        )
        for seed in (0, 1)
    ]
    data = curves_data(runs).set_index(["panel", "round"])
    assert data.loc[("personalised", 1), "accuracy"] == pytest.approx(0.3)
    assert data.loc[("personalised", 2), "accuracy"] == pytest.approx(0.55)
    assert data.loc[("global", 1), "accuracy"] == pytest.approx(0.4)
    assert data.loc[("global", 1), "sd_seeds"] == pytest.approx(0.2 / 2**0.5)


def test_curves_leave_out_rounds_that_a_seed_lacks(make_run) -> None:
    runs = [make_run("MAP", 0, server={1: 0.1, 2: 0.2}), make_run("MAP", 1, server={2: 0.4})]
    data = curves_data(runs)
    assert list(data["round"]) == [2]
    assert list(data["accuracy"]) == [pytest.approx(0.3)]


def test_curves_keep_the_end_apart_from_the_rounds(make_run) -> None:
    data = curves_data([make_run("LU", personal={(2, "after"): [0.2], (2, "end"): [0.8]})])
    assert dict(zip(data["moment"], data["accuracy"], strict=True)) == {"round": 0.2, "end": 0.8}


def test_curves_have_no_missing_number_with_several_seeds(comparison: list[Run]) -> None:
    data = curves_data(comparison)
    assert not data.isna().any().any()
    assert data["round"].dtype.kind == "i"
    assert set(data.loc[data["moment"] == "end", "method"]) == {"FedAvg-LU", "PersFL"}
    assert not {"Local", "FedPer"} & set(data.loc[data["panel"] == "global", "method"])


def test_curves_figure_draws_a_line_per_measured_curve(comparison: list[Run]) -> None:
    figure = curves_figure(curves_data(comparison))
    left, right = figure.axes
    drawn = [sum(len(line.get_xdata()) == 40 for line in axes.lines) for axes in (left, right)]
    assert drawn == [7, 7]
    assert len(right.containers) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "Local"
    assert max(right.get_xticks()) <= 40


def test_clients_figure_has_a_strip_per_method_best_on_top(comparison: list[Run]) -> None:
    data = clients_data(comparison)
    labels = [text.get_text().split("\n")[0] for text in clients_figure(data).axes[0].get_yticklabels()]
    means = data.groupby("method")["accuracy"].mean()
    assert labels == list(means.sort_values().index)
    assert len(labels) == 9


def test_partition_figure_draws_one_bubble_per_nonzero_count() -> None:
    counts = np.array([[3, 0, 1], [0, 12, 0]])
    bubbles = partition_figure(counts.tolist(), "digits").axes[0].collections[0]
    assert sorted(map(tuple, bubbles.get_offsets().tolist())) == [(0, 0), (0, 2), (1, 1)]
    sizes = dict(zip(map(tuple, bubbles.get_offsets().tolist()), bubbles.get_sizes(), strict=True))
    assert sizes[(1, 1)] == pytest.approx(4 * sizes[(0, 0)])


def test_partition_figure_says_how_many_clients_it_leaves_out() -> None:
    title = partition_figure([[1, 2]] * 200).axes[0].get_title(loc="left")
    assert "first 60 of 200 clients" in title


def test_every_method_of_the_catalogue_has_a_look_of_its_own() -> None:
    assert set(LOOKS) == set(METHODS)
    looks = appearances(METHODS)
    assert len({(look.colour, look.line) for look in looks.values()}) == len(METHODS)
    assert len({(look.colour, look.marker) for look in looks.values()}) == len(METHODS)
    for name, entry in METHODS.items():
        assert appearance(entry.label) == looks[name]


def test_common_methods_differ_in_colour() -> None:
    names = ["local", "fedavg", "fedper", "fedrs", "fedphp", "map", "persfl", "superfed_mm", "ditto", "apfl"]
    names += ["pfedme", "fedrep", "scaffold", "fedprox"]
    assert len({appearance(name).colour for name in names}) == len(names)
    assert appearance("fedavg_lu").line != appearance("fedavg").line


def test_a_look_follows_from_the_name_alone() -> None:
    assert appearances(["MAP", "mine"])["mine"] == appearances(["other", "mine", "FedAvg"])["mine"]
    assert appearance("mine") != appearance("other")
    for variant in ("MAP (alpha=0.5)", "MAP #2", "MAP + proximal(weight=0.1)"):
        one, other = appearance(variant), appearance("MAP")
        assert one.colour == other.colour and one.line != other.line and one.marker != other.marker
    assert appearance("mine (depth=2)").colour == appearance("mine (depth=3)").colour
