"""Choices look at validation data; the oracle, which does not, is called so."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

import idiolect
from idiolect.core import Choice, Method, Part, Stage, chain
from idiolect.core.measures import validation
from idiolect.errors import UserError
from idiolect.evaluation import choose
from idiolect.methods import method, names, register
from idiolect.methods.catalogue import METHODS
from idiolect.parts import average

CHOICE = Choice(name="mix(validated)", family="mix(", oracle="mix(oracle)")


def scores(**accuracies: list[float]) -> dict[str, dict[str, list[float]]]:
    named = {"a": "mix(0)", "b": "mix(0.5)", "c": "mix(1)", "other": "global"}
    return {named[key]: {"accuracy": values, "loss": [0.0]} for key, values in accuracies.items()}


VALID = scores(a=[0.1, 0.3], b=[0.9, 0.1], c=[0.2, 0.2], other=[1.0, 1.0])
TEST = scores(a=[0.5, 0.6], b=[0.3, 0.4], c=[0.9, 0.8], other=[1.0, 1.0])


def test_member_is_chosen_by_mean_validation_accuracy_and_scored_on_test():
    found, picks = choose([CHOICE], VALID, TEST)
    assert picks["mix(validated)"] == "mix(0.5)"
    assert found["mix(validated)"]["accuracy"] == [0.3, 0.4]


def test_choice_does_not_move_with_test_scores():
    swapped = scores(a=[1.0, 1.0], b=[0.0, 0.0], c=[0.0, 0.0], other=[0.0, 0.0])
    assert choose([CHOICE], VALID, swapped)[1]["mix(validated)"] == "mix(0.5)"


def test_oracle_looks_at_test_and_is_named_so():
    found, picks = choose([CHOICE], VALID, TEST)
    assert picks["mix(oracle)"] == "mix(1)"
    assert found["mix(oracle)"]["accuracy"] == [0.9, 0.8]
    assert set(found) == {"mix(validated)", "mix(oracle)"}


def test_without_validation_scores_the_oracle_is_alone():
    found, picks = choose([CHOICE], {}, TEST)
    assert picks == {"mix(oracle)": "mix(1)"} and set(found) == {"mix(oracle)"}


def test_tie_goes_to_the_first():
    even = scores(a=[0.2, 0.2], b=[0.3, 0.3], c=[0.3, 0.3])
    assert choose([CHOICE], even, even)[1] == {"mix(validated)": "mix(0.5)", "mix(oracle)": "mix(0.5)"}


def test_family_without_members_is_refused_by_name():
    only = scores(other=[1.0])
    with pytest.raises(UserError, match=r"to choose mix\(validated\) from"):
        choose([CHOICE], only, only)


def test_nothing_to_choose_gives_nothing():
    assert choose([], VALID, TEST) == ({}, {})


def test_choosing_methods_declare_an_oracle_that_is_called_oracle():
    choosing = {name: choice for name in names() for choice in method(name).choices}
    assert {"superfed_mm", "superfed_lm"} <= set(choosing)
    for name, choice in choosing.items():
        assert "oracle" in choice.oracle and "oracle" not in choice.name
        assert "oracle" not in method(name).headline


# ---- a choice on test data without the word: attempts


@pytest.mark.parametrize("oracle", ["mix(best)", "best", "", "Oracle"])
def test_pick_on_test_data_without_the_word_oracle_is_refused(oracle):
    with pytest.raises(UserError, match="must have the word oracle in its name"):
        Choice(name="mix(validated)", family="mix(", oracle=oracle)
    with pytest.raises(UserError, match="must have the word oracle in its name"):
        replace(CHOICE, oracle=oracle)


def test_method_with_such_a_pick_cannot_be_registered():
    def cheat() -> Method:
        best = Choice(name="mix(validated)", family="mix(", oracle="mix(best)")
        return chain(average(), Part("cheat", choices=(best,)))

    with pytest.raises(UserError, match="must have the word oracle"):
        register("cheat", cheat)
    assert "cheat" not in METHODS


def test_validated_pick_cannot_be_called_oracle():
    with pytest.raises(UserError, match="is no oracle"):
        Choice(name="mix(oracle)", family="mix(", oracle="mix(oracle)")


@pytest.mark.parametrize("split", ["test", "server", "all"])
def test_stage_that_reads_test_data_is_refused(split):
    with pytest.raises(UserError, match=f"the split of the stage 'peek' must be one of .*got '{split}'"):
        Stage("peek", measure=validation(), split=split)
    with pytest.raises(UserError, match="the split of the stage 'main'"):
        replace(Stage(), split=split)


PICKING = {"idxmax", "idxmin", "argmax", "argmin", "nlargest"}
MAY_PICK = {
    "evaluation/predictor_scores.py",
    "statistics/choice.py",
    "statistics/measurements.py",  # the round of the reading `validated`, by validation data alone
}  # each names the data it picks on
PREDICTS = {
    "experiments/finished/client_models.py",
    "reproduction/studies/head_observations.py",
}  # the class of a sample, which is no choice between results


@pytest.mark.parametrize("room", ["evaluation", "statistics", "reports", "experiments", "reproduction"])
def test_nothing_else_picks(room):
    source = Path(idiolect.__file__).parent
    for file in (source / room).rglob("*.py"):
        called = {
            node.attr for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Attribute)
        }
        assert not called & PICKING or str(file.relative_to(source)) in MAY_PICK | PREDICTS, file.name
