"""Choices look at validation data; the oracle, which does not, is called so."""

from __future__ import annotations

import pytest

from idiolect.core import Choice
from idiolect.errors import UserError
from idiolect.evaluation import choose
from idiolect.methods import method

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
    for name in ("superfed_mm", "superfed_lm"):
        (choice,) = method(name).choices
        assert "oracle" in choice.oracle and "oracle" not in choice.name
        assert method(name).headline != choice.oracle
