"""What scenarios and figures say of their papers: origins of settings, notes, and numbers that are really printed."""

from __future__ import annotations

from dataclasses import fields, replace
from inspect import getdoc
from types import SimpleNamespace

import pytest

from idiolect.errors import UserError
from idiolect.experiments import Experiment
from idiolect.methods import card
from idiolect.methods.persfl import persfl_gd
from idiolect.option_parsing import parse_call
from idiolect.parts.optimal_teacher import optimal_teacher
from idiolect.reproduction import pictures, request
from idiolect.reproduction.papers import figure, figures, papers, tables
from idiolect.reproduction.reproduce import reproduce
from idiolect.reproduction.scenarios import find_scenario, scenario, scenarios
from idiolect.reproduction.scenarios.catalogue import read_scenarios

LOOP = {"engine": "loop", "device": "cpu"}
FEMNIST = [found.name for found in scenarios() if found.name.startswith("map-femnist")]
FLICKR = [found.name for found in scenarios() if found.dataset == "flickr-aes"]


@pytest.fixture
def stand_in(tiny, monkeypatch):
    """Every scenario stands for the tiny experiment with every round observed."""

    def known(name: str):
        def experiment(method: str, preset: str):
            return replace(
                tiny,
                method=find_scenario(name).method_text(method, preset),
                observe="always",
                evaluate_every=1,
            )

        return SimpleNamespace(name=name, experiment=experiment, warning_of=lambda preset: "")

    monkeypatch.setattr(request, "find_scenario", known)


# ---- scenarios


@pytest.mark.parametrize("name", FEMNIST)
def test_femnist_of_map_says_what_its_section_does_not_state(name):
    """Section 5.3 states momentum and learning rate; batch size and weight decay are those of section 5.2."""
    found = find_scenario(name)
    assert not found.differs  # the server's test set is that of all clients together, as in the paper
    given = found.settings()
    assert {given[key].origin for key in ("batch_size", "weight_decay")} == {"inferred"}
    assert all("not stated" in given[key].reason for key in ("batch_size", "weight_decay"))
    assert given["weight_decay"].value == 1e-5
    assert {given[key].origin for key in ("momentum", "learning_rate", "test")} == {"paper"}


@pytest.mark.parametrize("name", FLICKR)
def test_flickr_is_split_as_the_paper_says(name):
    """Section 4.1: each user's data are split into 80 % for training and 20 % for testing."""
    given = find_scenario(name).settings()
    assert (given["test"].value, given["test"].origin, given["test"].reason) == (0.2, "paper", "")
    assert "does not state" in given["dataset"].reason


@pytest.mark.parametrize("name", ["map-o1-8", "map-o1-2", "map-o2", "map-o3", "map-o4"])
def test_studies_of_map_say_what_is_not_stated(name):
    given = find_scenario(name).settings()
    assert {given[key].origin for key in ("batch_size", "weight_decay")} == {"inferred"}
    assert given["momentum"].origin == ("inferred" if name == "map-o4" else "paper")


def test_unequal_classes_of_persfl_are_owned_up_to():
    for name in ("persfl-c10-ds1", "persfl-mnist-ds1"):
        assert "unequal numbers per class" in find_scenario(name).settings()["partition"].reason


def test_tuned_tables_of_superfed_say_that_settings_are_not_printed():
    for name in ("super-c10", "super-c100", "super-emnist", "super-tiny"):
        assert any(
            text.startswith("the compared methods' settings were tuned")
            for text in find_scenario(name).differs
        )


def test_what_a_scenario_states_as_the_papers_is_not_chosen_here_any_more():
    text = """
paper = "map"
[common.paper]
clients = 2
[common.inferred]
test = 0.3
[[scenario]]
name = "a"
line = "l"
paper = { test = 0.2 }
[[scenario]]
name = "b"
like = "a"
line = "l"
inferred = { test = 0.1 }
"""
    a, b = (found.settings()["test"] for found in read_scenarios(text))
    assert (a.value, a.origin) == (0.2, "paper")
    assert (b.value, b.origin) == (0.1, "inferred")


# ---- equations of PersFL


def test_equations_of_persfl():
    """Section 5.5: equation 3 is the divergence, equation 7 the cross-entropy of PersFL-GD."""
    for name in ("persfl", "persfl_gd"):
        equations = card(name).equations
        (teacher,) = [text for key, text in equations.items() if "eq. (2)" in text]
        (student,) = [text for text in equations.values() if "|| sigma(A/T))" in text]
        assert "eq. (3); PersFL-GD: eq. (7)" in teacher
        divergence, cross_entropy = (line for line in student.splitlines() if "eq. (" in line)
        assert divergence.endswith("eq. (3)") and "PersFL-GD" in cross_entropy
        assert cross_entropy.endswith("eq. (7)")
    assert "eq. 7" in getdoc(persfl_gd) and "PersFL, eq. 3" in getdoc(optimal_teacher)


# ---- numbers of figures


def test_words_of_a_paper_never_stand_as_its_number():
    """FedPer's "similar to random guessing" and FedPHP's "nearly zero" are no numbers."""
    assert {found.id for found in figures() if found.numbers} == {"map-fig10", "superfed-fig3"}
    assert any("random guessing" in note and "no number" in note for note in figure("fedper-fig7").notes)
    assert any("nearly zero" in note and "no number" in note for note in figure("fedphp-fig6").notes)


def test_settings_that_figures_vary_are_settings():
    known = {field.name for field in fields(Experiment)}
    for found in figures():
        assert set(found.settings) <= known
        assert all(set(line.settings) <= known for line in found.lines)


def test_observation_of_fedphp_varies_epochs_rate_and_learning_rate_around_each_scene():
    lines = figure("fedphp-fig2").lines
    for name in ("php-c10", "php-c100", "php-femnist"):
        here = [line.settings for line in lines if name in line.scenarios]
        assert [settings for settings in here if not settings] == [{}]
        varied = {key for settings in here for key in settings}
        assert varied == {"local_epochs", "participation_rate", "learning_rate"}
        base = scenario(name)
        assert all(getattr(base, key) != value for settings in here for key, value in settings.items())
    assert scenario("php-femnist").participation_rate == 0.01


def test_settings_of_a_line_are_run(stand_in, tmp_path):
    done = reproduce("fedphp-fig2", columns=["php-femnist"], out=tmp_path, **LOOP)
    assert len(done.numbers) == 4 and not done.failures
    names = {one.row for one in done.numbers}
    assert "FedAvg, eta = 0.01" in names and "FedAvg, Q = 1" not in names
    values = {one.row: one.value for one in done.numbers}
    assert values["FedAvg, E = 2"] != values["FedAvg as in section 4.1"]


def test_grid_of_fedphp_stands_beside_the_best_compared_method(stand_in, tmp_path, monkeypatch):
    found = figure("fedphp-fig7")
    assert len(found.compared) == 10 and all(line.method != "fedphp" for line in found.compared)
    names = reproduce.__globals__
    few = replace(found, options={"transfer": ["kd"], "transfer_weight": [0.0, 0.1]})
    monkeypatch.setitem(names, "figure", lambda id: few)
    drawn = []
    honest = pictures.image
    monkeypatch.setattr(pictures, "image", lambda fig, kind: drawn.append(fig) or honest(fig, kind))
    monkeypatch.setattr(request, "quick_experiment", lambda experiment: experiment)
    asked = ["fedphp", "fedavg", "local"]
    done = reproduce("fedphp-fig7", columns=["php-c100"], methods=asked, quick=True, out=tmp_path, **LOOP)
    values = {one.row: one for one in done.numbers}
    for line in ("Begin", "End"):
        best = values[f"[best compared method, {line}]"]
        others = [values[f"{label}, {line}"] for label in ("FedAvg", "NoFed")]
        assert best.value == max(one.value for one in others) and best.rule == "oracle"
        titles = [axes.get_title(loc="left") for axes in drawn[0].axes]
        assert f"php-c100, {line} [{best.value:.1f}]" in titles


def test_compared_methods_that_were_not_run_leave_no_best_one(tmp_path):
    done = reproduce("fedphp-fig7", columns=["php-c100"], data_dir=tmp_path / "none", out=tmp_path)
    best = [one for one in done.numbers if one.row.startswith("[best")]
    assert len(best) == 2 and all(one.value is None and "cifar100" in one.missing for one in best)


# ---- runs that a paper averages


def test_persfl_is_run_five_times_unless_told_otherwise(stand_in, tmp_path):
    assert {name: found.seeds for name, found in papers().items() if found.seeds != 1} == {"persfl": 5}
    asked = {"columns": ["fedavg-ds1"], "out": tmp_path, **LOOP}
    done = reproduce("persfl-table2", **asked)
    assert {one.seeds for one in done.numbers if one.value is not None} == {5}
    assert any("5 seeds" in note for note in done.notes)
    told = reproduce("persfl-table2", seeds=2, **asked)
    assert {one.seeds for one in told.numbers if one.value is not None} == {2}


# ---- doubts of FedPHP


def test_inherited_models_of_a_paper_start_in_one_way():
    """As the paper's own text or its authors' code has it, in every table and figure alike."""
    starts: dict[str, set[str]] = {}
    inherited = {"fedphp", "map", "scamap"}
    for found in (*tables(), *figures()):
        shown = found.cells if hasattr(found, "cells") else found.lines
        for one in shown:
            if one.method.partition("(")[0] in inherited:
                for scene in one.scenarios:
                    _, options = parse_call(find_scenario(scene).method_text(one.method))
                    starts.setdefault(found.paper, set()).add(options.get("hpm_init", "lazy"))
    assert starts == {"fedphp": {"theta0"}, "map": {"lazy"}}
    for id in ("fedphp-fig4", "fedphp-fig5", "fedphp-fig6", "fedphp-fig7", "fedphp-fig8"):
        assert any("starts as a copy of the first shared one" in note for note in figure(id).notes)


def test_degradation_can_be_read_at_the_next_round(stand_in, tmp_path):
    asked = {"columns": ["php-c10"], "methods": ["fedavg"], "out": tmp_path, **LOOP}
    default = reproduce("fedphp-fig6", **asked)
    assert any(note.endswith("at the next selection") for note in default.notes)
    points = (default.folder / "fedphp-fig6-points.csv").read_text()
    written = reproduce("fedphp-fig6", delta="round", **asked)
    assert any(note.endswith("at the next round") for note in written.notes)
    assert (written.folder / "fedphp-fig6-points.csv").read_text() != points
    with pytest.raises(UserError, match="map-table2 shows no local degradation, only fedphp-fig6 does"):
        reproduce("map-table2", delta="round", out=tmp_path)
    with pytest.raises(UserError, match="delta must be one of selection, round; got 'never'"):
        reproduce("fedphp-fig6", delta="never", out=tmp_path)
