"""Every two parts run together, or are refused by name before any training; none fails later."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from idiolect import methods
from idiolect.cli import TINY
from idiolect.engines import Loop, Where
from idiolect.errors import UserError
from idiolect.experiments import Simulation, prepare, with_settings

from .sameness import assert_exact, numbers, states
from .tiny import finished_run

PAGE = Path(__file__).parents[2] / "docs" / "combinations.md"
PAIRS = list(methods.pairs(methods.method))  # refused here are only those refused as they are made
SOME = random.Random(0).sample(PAIRS, len(PAIRS) // 3)


def tried(text: str) -> str:
    """Two rounds and the end of the run; the sentence of a refusal, which must come before them."""
    try:
        setting = prepare(with_settings(TINY, {"method": text}), Where("loop", "cpu", ""))
    except UserError as error:
        return str(error)
    run = Simulation.start(setting, Loop(setting.work))
    run.advance()
    run.advance()
    run.finish()
    assert all(row["value"] == row["value"] for row in run.rows.table().to_pylist()), "not a number"
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
    assert PAGE.read_text(encoding="utf-8") == methods.pairs_page(found), "run python scripts/write_cards.py"


@pytest.mark.slow
@pytest.mark.parametrize("pair", listed(PAIRS))
def test_pair_the_other_way_round_runs_or_is_refused(pair: methods.Pair) -> None:
    first, second = pair.method.split(" + ")
    refused = tried(f"{second} + {first}")
    assert not refused or (pair.first in refused and pair.second in refused)


def test_page_counts_every_pair() -> None:
    assert len(PAIRS) == 28 * 27 // 2
    assert f" of {len(PAIRS)} pairs work" in PAGE.read_text(encoding="utf-8")


def test_scamap_is_exactly_its_composition() -> None:
    named = finished_run("scamap")
    composed = finished_run("scaffold + restricted_softmax(alpha=0.9) + inherited_model(transfer=kd)")
    assert_exact(states(composed), states(named))
    assert numbers(composed) == numbers(named)


def _reasons() -> list[str]:
    return [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("- ")]
