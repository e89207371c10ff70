"""What cannot work is refused before training starts, whatever round it would come in."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from idiolect.core import Clock, Part, Plan, Scene, Stage
from idiolect.engines import Forms, ReportedNames, place
from idiolect.errors import UserError
from idiolect.experiments import prepare
from idiolect.methods.catalogue import PARTS

LOOP = place("loop", "cpu")
NAMELESS = ReportedNames((), (), (), (), ())


def failing_in(round: int, phase: str):
    """A part with one stage more in one round, and that stage cannot work."""

    def objective(view):
        return lambda params, batch, out: out.logits @ torch.zeros(99, device=out.logits.device)

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        late = Stage("late", "late", objective=objective, steps=1)
        return plan._replace(**{phase: (*getattr(plan, phase), late)}) if clock.round == round else plan

    return lambda: Part("late", stages=stages)


@pytest.mark.parametrize("phase", ["before", "after", "server", "merged"])
@pytest.mark.parametrize("round", [0, 1, 3])
def test_stage_of_any_single_round_is_tried(tiny, monkeypatch, round, phase):
    monkeypatch.setitem(PARTS, "late", failing_in(round, phase))
    with pytest.raises(UserError, match="does not work on this network"):
        prepare(replace(tiny, method="fedavg + late", rounds=4), LOOP)


def test_stage_of_a_round_beyond_the_run_is_not_tried(tiny, monkeypatch):
    monkeypatch.setitem(PARTS, "late", failing_in(4, "before"))
    prepare(replace(tiny, method="fedavg + late", rounds=4), LOOP)


@pytest.mark.parametrize(
    ("method", "rounds", "tried"),
    [
        ("fedavg", 5, [4]),
        ("persfl(lambdas=(0.5,), temperatures=(1.0,))", 5, [4]),
        ("feddf(every=2)", 4, [3]),
        ("feddf(every=2)", 5, [4, 3]),
        ("feddf(every=7)", 5, [4]),
    ],
)
def test_as_few_rounds_are_tried_as_show_every_stage(tiny, monkeypatch, method, rounds, tried):
    found = []
    monkeypatch.setattr(
        "idiolect.experiments.setting.dry_round",
        lambda program, *others: found.append(program.clock.round) or Forms([], [], {}, NAMELESS),
    )
    prepare(replace(tiny, method=method, rounds=rounds, public=6), LOOP)
    assert found == tried
