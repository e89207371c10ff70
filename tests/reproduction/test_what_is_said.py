"""What a reproduction says about itself: names, captions, axes and the list are true of what was run."""

from __future__ import annotations

from dataclasses import replace

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from idiolect.data import load
from idiolect.engines import EngineChoice
from idiolect.experiments.jobs.campaign import RunOutcome
from idiolect.reproduction.compared_number import ComparedNumber
from idiolect.reproduction.figures import figure_requests
from idiolect.reproduction.listing import list_reproductions
from idiolect.reproduction.papers import figure, table
from idiolect.reproduction.pictures import DRAWINGS, points_of_tables
from idiolect.reproduction.reproduction_result import write_reproduction
from idiolect.reproduction.request import ReproductionRequest
from idiolect.reproduction.studies.head_study import studies_of
from idiolect.reproduction.studies.study_figures import with_dead_features_named
from idiolect.reproduction.studies.training import _live
from idiolect.reproduction.tables import cell_number, cell_requests, choice_notes

QUICK = ReproductionRequest(quick=True)
HERE = EngineChoice("loop", "cpu", "as asked")


def test_latex_holds_nothing_of_this_machine_and_markdown_says_how_to_get_data(tmp_path):
    reason = (
        "cifar10 is not on this machine; get it with `idiolect datasets get cifar10 --data-dir /home/me/data`"
    )
    numbers = [
        ComparedNumber("FedAvg", "c10-vgg8", unit="%", missing=reason),
        ComparedNumber("MAP", "c10-vgg8", unit="%", failed="/home/me/runs is full"),
    ]
    write_reproduction("map-table2", "Accuracy", numbers, ["one note"], ReproductionRequest(), tmp_path)
    latex = (tmp_path / "map-table2" / "map-table2.tex").read_text()
    assert "/home" not in latex and "machine" not in latex
    assert (
        "map-table2: Accuracy. Measured, and the paper's number in brackets. Preset paper, 1 seed." in latex
    )
    assert "One note." in latex and r"FedAvg & not run \\" in latex and r"MAP & refused \\" in latex
    assert "/home/me/data" in (tmp_path / "map-table2" / "map-table2.md").read_text()


def test_caption_of_a_single_setting_does_not_speak_of_the_best_of_three(tmp_path):
    for id in ("map-table1", "map-table2"):
        assert "best" not in table(id).caption
        (note,) = choice_notes(table(id), ReproductionRequest())
        assert note.startswith(
            "one setting of each method is run; the paper prints the best of three settings"
        )
        assert choice_notes(table(id), ReproductionRequest(grid={"map": [{}]})) == []
    assert choice_notes(table("persfl-table7"), ReproductionRequest()) == []


def test_quick_names_say_which_network_stands_in():
    assert QUICK.shown_name("c10-vgg8", ["map-c10-vgg8"]) == "c10-vgg8 (lenet5 instead)"
    assert QUICK.shown_name("fa-mlpnet", ["map-fa-mlpnet"]) == "fa-mlpnet"
    both = QUICK.shown_name("avg", ["map-fa-mlpnet", "map-c10-vgg8", "map-c100-vgg8bn"])
    assert both == "avg (lenet5, lenet_bn instead)"
    assert ReproductionRequest().shown_name("c10-vgg8", ["map-c10-vgg8"]) == "c10-vgg8"


def test_quick_title_names_what_the_paper_shows_as_the_papers(tmp_path):
    write_reproduction("map-table2", "CIFAR-100 with VGG", [], [], QUICK, tmp_path)
    text = (tmp_path / "map-table2-quick" / "map-table2.md").read_text()
    assert text.startswith(
        "**map-table2 (quick stand-in on embedded data). The paper shows: CIFAR-100 with VGG**"
    )


def test_axes_of_figure_nine_are_those_of_the_two_tables():
    numbers = [
        ComparedNumber(row, id, value=value)
        for row, values in {"FedAvg": (64.0, 71.3), "MAP": (66.8, 73.9), "FedRep": (None, 65.1)}.items()
        for id, value in zip(("map-table1", "map-table2"), values, strict=True)
    ]
    points = points_of_tables(numbers, ("map-table1", "map-table2"))
    picture = DRAWINGS["table"](points, figure("map-fig9"), "map-fig9 (quick)")
    axes = picture.axes[0]
    assert axes.get_ylabel() == "Personalised, selected clients, last round, mean over scenes (%)"
    assert axes.get_xlabel() == "Aggregated model, official test set, mean over scenes (%)"
    assert axes.get_title(loc="left") == "map-fig9 (quick)"
    low, high = axes.get_xlim()
    assert low + 0.1 * (high - low) < 64.0  # room on the left edge for the method without a global model
    reading = table("map-table2").cells[0].reading
    assert (reading.population, reading.moment, reading.rounds) == ("selected", "after", "last")
    plt.close(picture)


def test_one_number_of_the_server_has_no_spread_over_clients():
    cell = next(
        cell for cell in table("map-table1").cells if (cell.row, cell.column) == ("FedAvg", "fa-mlpnet")
    )
    asked = cell_requests(cell, QUICK)
    outcome = RunOutcome(pd.Series([0.5]))
    number = cell_number(cell, QUICK, {one.key: outcome for one in asked})
    assert cell.spread is not None and number.value == 50.0 and number.spread is None


def points_with(x: list[float], y: list[float]) -> pd.DataFrame:
    samples = pd.DataFrame({"what": "sample", "label": 0, "x": x, "y": y, "observed": True})
    proxies = pd.DataFrame(
        {"what": "proxy", "label": [0, 1], "x": [1.0, 2.0], "y": [3.0, 4.0], "observed": True}
    )
    return pd.concat([samples, proxies], ignore_index=True).assign(panel="8 classes with ReLU", seed=0)


def test_dead_features_are_named_in_the_panel_and_in_a_note():
    points, notes = with_dead_features_named(points_with([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]))
    assert set(points["panel"]) == {"8 classes with ReLU (dead: feature 0 and feature 1)"}
    assert notes[0].startswith("8 classes with ReLU, seed 0: both features are the same for all samples")
    points, (note,) = with_dead_features_named(points_with([0.0, 1.0, 0.5], [0.0, 0.0, 0.0]))
    assert "feature 1 is the same for all samples" in note and "(dead: feature 1)" in points["panel"][0]
    alive = points_with([0.0, 1.0, 0.5], [0.0, 2.0, 0.0])
    points, notes = with_dead_features_named(alive)
    assert notes == [] and points.equals(alive)


def test_network_of_figure_five_with_relu_starts_with_live_features():
    """Seed 0 draws a second feature that is above zero for no sample at all."""
    found = [one.study for one in studies_of("features", ("map-o1-8",), 0, True)]
    (relu,) = [study for study in found if "relu=True" in study.model]
    assert [study.live_start for study in found] == ["relu=True" in study.model for study in found]
    whole = load(relu.dataset)
    few = {"train_x": whole.train_x[:300], "train_y": whole.train_y[:300]}
    data = replace(whole, **few, test_x=whole.test_x[:300], test_y=whole.test_y[:300])
    dead, nothing = _live(replace(relu, live_start=False), data, HERE)
    assert not dead.responds() and nothing == []
    live, notes = _live(relu, data, HERE)
    assert live.responds() and "first values drawn" in notes[0]


@pytest.fixture(scope="module")
def listed():
    return {one.id: one for one in list_reproductions()}


def test_list_says_what_each_needs(listed):
    assert len(listed) == 64 and all(one.what for one in listed.values())
    nine = listed["map-fig9"]
    assert nine.runs == len(
        {one.experiment for one in figure_requests(figure("map-fig9"), ReproductionRequest())}
    )
    assert "cifar10" in nine.datasets and "vgg8" in nine.models and nine.client_rounds > 1000 * nine.runs
    assert listed["map-fig5"].client_rounds == 6 * 50 and listed["map-fig5"].datasets == ("mnist",)
    assert listed["fedphp-table1"].runs == 0 and "femnist" in listed["fedphp-table1"].datasets
    assert listed["map-fig1"].runs == 0 and listed["map-fig1"].datasets == ()
    assert set(nine.missing) <= set(nine.datasets)


def test_cost_of_a_figure_is_rounds_times_clients(listed):
    """FedPer's figure 3: two methods, 10 clients that all take part in each of 100 rounds."""
    assert (listed["fedper-fig3"].runs, listed["fedper-fig3"].client_rounds) == (2, 2 * 100 * 10)
