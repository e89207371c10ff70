"""The methods as the command line shows them, and the examples that add to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from idiolect import cli, methods
from idiolect.testing import Conformance, Finding

ROOT = Path(__file__).parents[2]


def test_card_is_printed_as_its_page_says(idiolect):
    answer = idiolect("methods", "scaffold")
    assert answer.code == 0 and answer.err == ""
    for piece in (
        "SCAFFOLD",
        "2P down, 2P up",
        "momentum = 0.0",
        "the control c_k",
        "Cannot be combined with",
    ):
        assert piece in answer.out


def test_json_holds_every_field(idiolect):
    (found,) = json.loads(idiolect("methods", "fedper", "--json").out)
    assert list(found) == list(methods.Card._fields)
    assert found["options"] == {"count": 1, "head_init": "random", "fine_tune_epochs": 0}
    assert (found["down"], found["personalises"]) == ("P_B", "layers")


@pytest.mark.parametrize("kind", methods.PERSONALISES)
def test_list_is_filtered_by_what_is_personal(kind, idiolect):
    listed = json.loads(idiolect("methods", "--personalises", kind, "--json").out)
    assert listed and {row["personalises"] for row in listed} == {kind}
    assert kind in idiolect("methods", "--personalises", kind).out


def test_composition_is_explained(idiolect):
    answer = idiolect("methods", "map + FedAdam(learning_rate=0.01)")
    assert answer.code == 0 and answer.err == ""
    for sentence in (
        "- inherited_model, of map",
        "- server_optimiser(rule=adam, learning_rate=0.01), of fedadam(learning_rate=0.01)",
        "Gives way: average of map to server_optimiser of fedadam(learning_rate=0.01).",
        "Predictors: global, after-local, companion.",
        "Headline predictor: companion, more personal than global.",
    ):
        assert sentence in answer.out


def test_explanation_names_companions_shared_parts_and_overrides(idiolect):
    (found,) = json.loads(idiolect("methods", "ditto + fedphp + scaffold", "--json").out)
    assert list(found) == list(methods.Explanation._fields)
    assert found["parts"][0] == ["average", "ditto"]
    assert found["shared"] == ["average of ditto and fedphp and scaffold"]
    assert found["predictors"] == ["global", "after-local", "companion(ditto)", "companion(fedphp)"]
    assert found["headline"] == "companion(ditto)"
    assert found["reason"] == "written before companion(fedphp), which is as personal"
    assert (
        len(found["overrides"]) == 1 and "local SGD of momentum 0 before the upload" in found["overrides"][0]
    )


def test_explanation_says_what_a_part_does_and_what_its_options_mean(idiolect):
    answer = idiolect("methods", "ditto + client_dp(clip=0.3)")
    words = " ".join(answer.out.split())
    for sentence in (
        "client_dp: Hides whether a client took part, with all its data",
        "- `noise = 1.0`: z >= 0, the standard deviation of the noise in units of C.",
        "- `delta = 1e-05`: of the budget",
    ):
        assert sentence in words
    (found,) = json.loads(idiolect("methods", "ditto + median", "--json").out)
    assert list(found["ideas"]) == ["median"] and found["options"] == {"median": {}}


def test_explanation_does_without_predictors_on_a_network_too_small(idiolect):
    answer = idiolect("methods", "fedper(count=7) + fedprox")
    assert answer.code == 0 and "- private_layers(count=7), of fedper(count=7)" in answer.out
    assert "Predictors: not known" in answer.out


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("map + fedrod", "use one of them, or write inherited_model + fedrod"),
        ("fedadam + fednova", "each sets the shared model from the uploads; use one of them"),
        ("map + fedavgg", "did you mean fedavg"),
        ("map + ", "write name, name(key=value) or a + b"),
    ],
)
def test_refused_composition_is_one_sentence(text, sentence, idiolect, refused):
    refused(idiolect("methods", text), sentence)


def test_unknown_kind_is_refused_with_the_known_ones(idiolect, refused):
    refused(idiolect("methods", "--personalises", "layer"), "did you mean layers?")


def test_pairs_are_listed_with_reasons(idiolect, monkeypatch):
    found = [
        methods.Pair("average", "proximal", "", ""),
        methods.Pair("a", "b", "", "a and b cannot be combined"),
    ]
    monkeypatch.setattr("idiolect.cli.methods.tried_pairs", lambda: found)
    answer = idiolect("methods", "--pairs")
    assert answer.code == 0 and "refused" in answer.out and "a and b cannot be combined" in answer.out
    assert (
        json.loads(idiolect("methods", "--pairs", "--json").out)[1]["refused"] == "a and b cannot be combined"
    )


def test_pairs_are_tried_before_any_training(monkeypatch):
    monkeypatch.setattr(
        "idiolect.methods.cards.combinations.PARTS",
        {n: methods.catalogue.PARTS[n] for n in ("average", "proximal")},
    )
    assert cli.tried_pairs() == [methods.Pair("average", "proximal", "average + proximal", "")]


def test_check_prints_the_contracts_of_a_composition(idiolect, monkeypatch):
    found = {}

    def checked(name, raise_on_failure):
        found["name"] = name
        return Conformance(name, (Finding("purity", passed=name != "bad"),))

    monkeypatch.setattr("idiolect.cli.methods.check_method", checked)
    answer = idiolect("methods", "fedper + proximal", "--check")
    assert (answer.code, found["name"]) == (0, "fedper + proximal")
    assert "passed     purity" in answer.out
    assert json.loads(idiolect("methods", "fedavg", "--check", "--json").out)[0]["contract"] == "purity"
    assert idiolect("methods", "bad", "--check").code == 1


def test_check_without_a_method_is_refused(idiolect):
    answer = idiolect("methods", "--check")
    assert answer.code == 2
    assert "--check needs a method" in answer.err
