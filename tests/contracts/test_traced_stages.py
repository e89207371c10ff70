"""The cohort as it runs on a CPU in a run of many rounds: steps traced once, run without vmap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idiolect.core import Batch, Loss, Out, Part, Tree, View, chain
from idiolect.engines import CohortEngine, LoopEngine
from idiolect.engines.cohort.cpu import traced_stages
from idiolect.parts import average

from .cases import METHODS, spelt
from .sameness import assert_equal, assert_exact, states
from .tiny import play, setting_of

SOME = ("fedavg", "map", "scaffold", "apfl")


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in METHODS if name not in SOME]


@pytest.mark.parametrize("name", [*SOME, *SLOW])
def test_traced_steps_equal_the_loop(name: str) -> None:
    setting = setting_of(spelt(name), model="mlpnet(hidden=8)")
    flat, loop = (
        play(setting, e) for e in (CohortEngine(setting.work, compile="flat"), LoopEngine(setting.work))
    )
    assert_equal(states(flat), states(loop))


@pytest.mark.parametrize(
    ("rounds", "traced"), [(traced_stages.MANY_ROUNDS - 1, False), (traced_stages.MANY_ROUNDS, True)]
)
def test_steps_are_traced_where_rounds_are_many(
    rounds: int, traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    trace = traced_stages.trace_step
    monkeypatch.setattr(traced_stages, "trace_step", lambda *given: calls.append(trace(*given)) or calls[-1])
    setting = setting_of("fedavg", model="mlpnet(hidden=8)", rounds=rounds)
    found = play(setting, CohortEngine(setting.work))
    assert_equal(states(found), states(play(setting, LoopEngine(setting.work))))
    assert bool(calls) == traced
    assert None not in calls
    assert len(calls) <= 8, "shapes are few, whatever the clients' sizes"


def test_step_that_cannot_be_traced_is_vmapped() -> None:
    def loss(inner: Loss, view: View) -> Loss:
        def total(params: Tree, batch: Batch, out: Out):  # type: ignore[no-untyped-def]
            return inner(params, batch, out) * (2.0 if view.clock.round < 1 else 1.0)

        return total

    setting = setting_of("fedavg", model="mlpnet(hidden=8)")
    setting = replace(setting, method=chain(average(), Part("by_round", loss=loss)))
    flat = play(setting, CohortEngine(setting.work, compile="flat"))
    assert_equal(states(flat), states(play(setting, LoopEngine(setting.work))))


@pytest.mark.parametrize(("augmentation", "reads"), [("none", False), ("crop_flip", True)])
def test_keys_are_drawn_only_where_a_step_reads_them(augmentation: str, reads: bool) -> None:
    setting = setting_of("fedavg", model="mlpnet(hidden=8)", augmentation=augmentation)
    steps = traced_stages.TracedStages(many=0)
    engine = CohortEngine(setting.work)
    engine._packing = steps.packing
    assert_equal(states(play(setting, engine)), states(play(setting, LoopEngine(setting.work))))
    assert list(steps._reads_keys.values()) == [reads]


WIDE = {
    "model": "mlpnet(hidden=8)",
    "dataset": "tiny(sizes=(120, 30, 60, 150, 90, 50))",
    "batch_size": 32,
    "weight_decay": 0.0,
}  # batches that a narrow softmax is transposed for, and no term between gradient and velocity


@pytest.mark.parametrize("name", SOME)
def test_steps_of_wide_batches_equal_the_loop(name: str) -> None:
    setting = setting_of(name, **WIDE)
    flat, loop = (
        play(setting, e) for e in (CohortEngine(setting.work, compile="flat"), LoopEngine(setting.work))
    )
    assert_equal(states(flat), states(loop))


@pytest.mark.parametrize(
    "neutral",
    ["fedprox(weight=0.0)", "moon(weight=0.0)", "fedcurv(weight=0.0)", "fedphp(transfer_weight=0.0)"],
)
def test_neutral_options_are_exact_in_traced_steps(neutral: str) -> None:
    found = []
    for name in ("fedavg", neutral):
        setting = setting_of(name, precision="float32", **WIDE)
        found.append(play(setting, CohortEngine(setting.work, compile="flat")).server["params"])
    assert_exact(*found)
