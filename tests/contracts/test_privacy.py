"""Differential privacy goes with any method on every engine: clipping, noise on the mean or of each client, DP-SGD."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")

from idiolect.engines.cohort.cpu.traced_stages import MANY_ROUNDS
from idiolect.testing import check_method

from .cases import spelt
from .sameness import FLOAT64, assert_equal, assert_exact, numbers, states
from .tiny import finished_run, play

PARTS = (
    "client_dp(clip=0.5, noise=0)",
    "client_dp(clip=0.5, noise=0.5)",
    "client_dp(clip=0.5, noise=0.5, where=local)",
    "dp_sgd(clip=0.5, noise=0.5)",
)
METHODS = ("fedavg", "fedper", "map", "ditto", "persfl")
PLAIN = "client_dp(clip=None, noise=0) + dp_sgd(clip=None, noise=0)"
QUICK = (("fedper", PARTS[1]), ("map", PARTS[3]))  # the others in the long suite
SMALL: dict[str, Any] = {"model": "mlpnet(hidden=8)"}
CONVOLUTIONS: dict[str, Any] = {"model": "lenet5", "rounds": 1}


def products(quick: tuple[tuple[str, str], ...] = ()) -> list[Any]:
    found = [(method, part) for method in METHODS for part in PARTS]
    return [
        pytest.param(f"{spelt(m)} + {p}", id=f"{m}-{p}", marks=[] if (m, p) in quick else [pytest.mark.slow])
        for m, p in found
    ]


@pytest.mark.parametrize("name", products(QUICK))
def test_engines_agree(name: str) -> None:
    loop = finished_run(name, **SMALL)
    assert_equal(states(finished_run(name, "cohort", **SMALL)), states(loop))
    pool = finished_run(name, "pool", **SMALL)
    assert_exact(states(pool), states(loop))
    assert numbers(pool) == numbers(loop)


@pytest.mark.parametrize("engine", ["loop", "cohort", "pool"])
@pytest.mark.parametrize(
    "name", [m if m == "fedper" else pytest.param(spelt(m), id=m, marks=pytest.mark.slow) for m in METHODS]
)
def test_without_bound_and_noise_a_run_is_the_plain_run_bit_for_bit(name: str, engine: str) -> None:
    plain, found = (finished_run(text, engine, **SMALL) for text in (name, f"{name} + {PLAIN}"))
    assert_exact(states(found), states(plain))
    assert numbers(found) == numbers(plain)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(spelt(m), id=m) for m in METHODS])
def test_without_bound_and_noise_a_run_on_ray_is_the_plain_run(name: str, ray_session: None) -> None:
    from idiolect.engines.ray import RayEngine  # noqa: PLC0415 - needs Ray

    plain = finished_run(name, **SMALL)
    setting = finished_run(f"{name} + {PLAIN}", **SMALL).setting
    assert_exact(states(play(setting, RayEngine(setting.work, workers=2))), states(plain))


@pytest.mark.slow
@pytest.mark.parametrize("name", products())
def test_ray_is_exactly_loop(name: str, ray_session: None) -> None:
    from idiolect.engines.ray import RayEngine  # noqa: PLC0415 - needs Ray

    loop = finished_run(name, **SMALL)
    assert_exact(states(play(loop.setting, RayEngine(loop.setting.work, workers=2))), states(loop))


@pytest.mark.slow
@pytest.mark.parametrize("name", products())
def test_convolutions_in_a_cohort_equal_loop(name: str) -> None:
    dataset = {"dataset": "tiny(channels=1, size=32)"}
    loop, cohort = (finished_run(name, engine, **CONVOLUTIONS, **dataset) for engine in ("loop", "cohort"))
    assert_equal(states(cohort), states(loop))


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_traced_steps_of_a_cohort_equal_loop(part: str) -> None:
    many = {**SMALL, "rounds": MANY_ROUNDS, "learning_rate": 0.01}
    loop, cohort = (finished_run(f"fedper + {part}", engine, **many) for engine in ("loop", "cohort"))
    assert_equal(states(cohort), states(loop))


@pytest.mark.slow
@pytest.mark.parametrize("name", products())
def test_contracts_hold(name: str) -> None:
    check_method(name, models=["mlpnet(hidden=8)"])


@pytest.mark.parametrize("selection", ["fixed", "poisson"])
def test_clipping_gradients_of_examples_that_are_short_leaves_the_mean_over_the_expected_batch(
    selection: str,
) -> None:
    """With a bound that nothing reaches and no noise, full batches make DP-SGD plain gradient descent."""
    whole = {**SMALL, "batch_size": 64, "rounds": 2, "selection": selection}
    plain = finished_run("fedavg", **whole)
    bounded = finished_run("fedavg + dp_sgd(clip=1e9, noise=0)", **whole)
    assert_equal(states(bounded), states(plain), FLOAT64)
