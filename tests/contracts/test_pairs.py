"""Every two parts and every two methods run together, or are refused by name before any training; none fails later."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

from idiolect import methods
from idiolect.cli import TINY
from idiolect.engines import EngineChoice, LoopEngine
from idiolect.errors import UserError
from idiolect.experiments import Simulation, prepare, with_settings
from idiolect.methods.catalogue import PARTS

from .sameness import assert_exact, numbers, states
from .tiny import finished_run

PAGE = Path(__file__).parents[2] / "docs" / "combinations.md"
PAIRS = list(methods.pairs(methods.method))  # refused here are only those refused as they are made
SOME = random.Random(0).sample(PAIRS, 100)
METHODS = list(methods.method_pairs(methods.method))
SOME_METHODS = random.Random(0).sample([pair for pair in METHODS if not pair.refused], 40)
FEW = "lambdas=(0.0, 0.5), temperatures=(1.0,), epochs=1"
SMALLER = {
    "feddf": "feddf(steps=2)",
    "fedrep": "fedrep(head_epochs=1)",
    "persfl": f"persfl({FEW})",
    "persfl_gd": f"persfl_gd({FEW})",
}  # minutes otherwise


def tried(text: str) -> str:
    """Two rounds and the end of the run; the sentence of a refusal, which must come before them."""
    try:
        setting = prepare(with_settings(TINY, {"method": text}), EngineChoice("loop", "cpu", ""))
    except UserError as error:
        return str(error)
    run = Simulation.start(setting, LoopEngine(setting.work))
    run.advance()
    run.advance()
    run.finish()
    rows = run.rows.table().to_pylist()
    assert all(row["value"] == row["value"] for row in rows), "not a number"
    assert setting.method.headline in {row["predictor"] for row in rows}
    return ""


def listed(pairs: list[methods.Pair]) -> list[Any]:
    return [pytest.param(pair, id=f"{pair.first} + {pair.second}") for pair in pairs]


@pytest.mark.parametrize("pair", listed(SOME))
def test_pair_runs_or_is_refused_as_the_page_says(pair: methods.Pair) -> None:
    refused = tried(pair.method)
    assert refused == pair.refused, "refused later than where it is made"
    assert not refused or (pair.first in refused and pair.second in refused)
    said = [line for line in _reasons() if line.startswith(f"- {pair.first}, {pair.second}: ")]
    assert said == ([f"- {pair.first}, {pair.second}: {refused}"] if refused else []), (
        "run python scripts/write_cards.py"
    )


@pytest.mark.slow
def test_every_pair_is_as_the_page_says() -> None:
    found = [pair._replace(refused=tried(pair.method)) for pair in PAIRS]
    assert found == PAIRS, "refused later than where it is made"
    page = methods.pairs_page(found, METHODS)
    assert PAGE.read_text(encoding="utf-8") == page, "run python scripts/write_cards.py"


@pytest.mark.slow
@pytest.mark.parametrize("pair", listed(PAIRS))
def test_pair_the_other_way_round_runs_or_is_refused(pair: methods.Pair) -> None:
    first, second = pair.method.split(" + ")
    refused = tried(f"{second} + {first}")
    assert not refused or (pair.first in refused and pair.second in refused)


def test_page_counts_every_pair() -> None:
    assert len(PAIRS) == math.comb(len(PARTS), 2) and len(METHODS) == math.comb(len(methods.names()), 2)
    for found, kind in ((PAIRS, "parts"), (METHODS, "methods")):
        working = sum(not pair.refused for pair in found)
        said = f"{working} of {len(found)} pairs of {kind} work"
        assert said in PAGE.read_text(encoding="utf-8"), "run python scripts/write_cards.py"


def the_other_way_round(pair: methods.Pair) -> str:
    return f"{pair.second} + {pair.first}"


def test_two_methods_have_one_headline_in_either_order_or_that_of_the_first_of_one_kind() -> None:
    for pair in (pair for pair in METHODS if not pair.refused):
        made, turned = methods.method(pair.method), methods.method(the_other_way_round(pair))
        assert sorted(part.written for part in made.parts) == sorted(part.written for part in turned.parts)
        names = {name for _, _, name in made.renamed}
        assert names == {name for _, _, name in turned.renamed}
        if made.headline != turned.headline:
            assert made.headline.partition("(")[0] == turned.headline.partition("(")[0], pair.method
            for found, first in ((made, pair.first), (turned, pair.second)):
                assert found.headline.startswith(methods.method(first).headline), pair.method


def test_two_methods_are_refused_with_a_reason_and_a_way_out() -> None:
    for pair in (pair for pair in METHODS if pair.refused):
        assert re.search(rf"\b{pair.first} \(\w+\) and |and {pair.first} \(", pair.refused), pair
        assert re.search(rf"\b{pair.second} \(\w+\) and |and {pair.second} \(", pair.refused), pair
        reason, _, way = pair.refused.partition(" cannot be combined: ")[2].partition("; ")
        assert reason and way.startswith("use one of them"), pair
        for text in way.partition("or write ")[2].split(" or "):
            assert not text or methods.method(text)
        with pytest.raises(UserError, match="cannot be combined: "):
            methods.method(the_other_way_round(pair))


@pytest.mark.parametrize("pair", listed(SOME_METHODS))
def test_two_methods_run(pair: methods.Pair) -> None:
    assert tried(" + ".join(SMALLER.get(name, name) for name in (pair.first, pair.second))) == ""


@pytest.mark.slow
@pytest.mark.parametrize("pair", listed([pair for pair in METHODS if not pair.refused]))
def test_two_methods_run_in_either_order(pair: methods.Pair) -> None:
    first, second = (SMALLER.get(name, name) for name in (pair.first, pair.second))
    assert (tried(f"{first} + {second}"), tried(f"{second} + {first}")) == ("", "")


def test_scamap_is_exactly_its_composition() -> None:
    named = finished_run("scamap")
    composed = finished_run("scaffold + restricted_softmax(alpha=0.9) + inherited_model(transfer=kd)")
    assert_exact(states(composed), states(named))
    assert numbers(composed) == numbers(named)


def _reasons() -> list[str]:
    return [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("- ")]
