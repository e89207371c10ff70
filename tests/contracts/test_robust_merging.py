"""Every robust mean works with every kind of method, under attack, and all engines agree on it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from .cases import ROBUST_PARTS, spelt
from .sameness import assert_equal, assert_exact, numbers, states
from .tiny import finished_run, play

METHODS = ("fedavg", "fedper", "map", "ditto", "persfl")
UNDER = ("sign_flip(share=0.4, factor=1.0)", "dropout(rate=0.2)", "late(share=0.3)")
QUICK = {("map", "multi_krum(share=0.34)")}
CASES = [
    pytest.param(f"{spelt(method)} + {part}", marks=[] if (method, part) in QUICK else [pytest.mark.slow])
    for method, part in product(METHODS, ROBUST_PARTS)
]


@pytest.mark.parametrize("text", CASES)
def test_engines_agree_on_robust_means_under_attack(text: str) -> None:
    loop, cohort, pool = (finished_run(text, engine, under=UNDER) for engine in ("loop", "cohort", "pool"))
    assert_equal(states(cohort), states(loop))
    assert_exact(states(pool), states(loop))
    assert numbers(pool) == numbers(loop)
    plain: Any = finished_run(text.rpartition(" + ")[0], under=UNDER)
    with pytest.raises(AssertionError):
        assert_exact(states(loop), states(plain))


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize(
    "text", [f"{spelt(method)} + {part}" for method, part in product(METHODS, ROBUST_PARTS)]
)
def test_ray_is_exactly_loop_with_robust_means(text: str) -> None:
    from .test_ray import on_ray  # noqa: PLC0415 - needs Ray

    loop = finished_run(text, under=UNDER)
    found = play(loop.setting, on_ray(loop.setting))
    assert_exact(states(found), states(loop))
    assert numbers(found) == numbers(loop)
