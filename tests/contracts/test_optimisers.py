"""Own optimisers and schedules within a round: engines agree, clients of unequal size follow their own schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from idiolect.core import Scene
from idiolect.engines import CohortEngine, Engine, LoopEngine, PoolEngine
from idiolect.engines.cohort.cpu import traced_stages
from idiolect.errors import UserError
from idiolect.experiments.setting import Setting
from idiolect.methods import method as read_method

from .cases import METHODS
from .sameness import assert_equal, assert_exact, states
from .tiny import play, setting_of

UNEVEN: dict[str, Any] = {
    "model": "mlpnet(hidden=8)",
    "dataset": "tiny(sizes=(28, 5, 15, 200, 20, 60))",  # 2, 1, 2, 15, 2 and 5 steps of training
    "participation_rate": 1.0,
    "rounds": 1,
    "evaluate_every": 1,
}
ADAM: dict[str, Any] = {"optimiser": "adam(beta_two=0.9)", "learning_rate": 0.01, "clip_norm": 0.5}
ADAMW: dict[str, Any] = {"optimiser": "adamw", "learning_rate": 0.01, "weight_decay": 0.1}
FALLING: dict[str, Any] = {"local_schedule": "cosine(final=0.1)"}
LINE: dict[str, Any] = {"local_schedule": "linear"}
BY_NAME: dict[str, Callable[[Setting], Engine]] = {
    "vmapped": lambda setting: CohortEngine(setting.work, compile="none"),
    "traced": lambda setting: CohortEngine(setting.work, compile="flat"),
    "on lanes": lambda setting: CohortEngine(setting.work, compile="trace"),
    "pool": lambda setting: PoolEngine(setting.work, 2),
}
PLAIN_STEPS = {
    "fednova": "normalised_average counts steps of SGD at one rate and cannot weigh those of optimiser=adam; ",
    "scaffold": "control_variates makes plain steps, about whose length a learning rate for adam says nothing; ",
    "scars": "control_variates makes plain steps, about whose length a learning rate for adam says nothing; ",
    "scamap": "control_variates makes plain steps, about whose length a learning rate for adam says nothing; ",
    "perfedavg_fo": "meta_gradient makes plain steps, about whose length a learning rate for adam says nothing; ",
    "perfedavg_hf": "meta_gradient makes plain steps, about whose length a learning rate for adam says nothing; ",
    "pfedme": "moreau_envelope makes plain steps, about whose length a learning rate for adam says nothing; ",
}


@pytest.mark.parametrize("engine", BY_NAME)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("map", ADAM | FALLING),
        pytest.param("fedavg", ADAM, marks=pytest.mark.slow),
        pytest.param("apfl(learned=True)", ADAMW | LINE, marks=pytest.mark.slow),
        pytest.param("scaffold(lr_scale=1.0)", ADAM | LINE, marks=pytest.mark.slow),
        pytest.param("superfed_mm(phase_one=0)", FALLING, marks=pytest.mark.slow),
        pytest.param("pfedme", LINE, marks=pytest.mark.slow),
    ],
)
def test_engines_agree(
    name: str, settings: dict[str, Any], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    trace = traced_stages.trace_step
    monkeypatch.setattr(traced_stages, "trace_step", lambda *given: steps.append(trace(*given)) or steps[-1])
    setting = setting_of(name, **(UNEVEN | settings))
    assert_equal(states(play(setting, BY_NAME[engine](setting))), states(_looped(name, settings)))
    assert bool(steps) == (engine == "traced")
    assert None not in steps


def _looped(name: str, settings: dict[str, Any], **others: Any) -> Any:
    setting = setting_of(name, **(UNEVEN | settings | others))
    return play(setting, LoopEngine(setting.work))


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        (LINE, lambda progress: 1 - progress),
        (FALLING, lambda progress: 0.1 + 0.9 * (1 + math.cos(math.pi * progress)) / 2),
    ],
)
def test_each_client_follows_the_schedule_by_its_own_number_of_steps(settings: Any, factor: Any) -> None:
    setting = setting_of("local", **(UNEVEN | settings | {"momentum": 0.0, "weight_decay": 0.0}))
    program = setting.program(0)
    stage = program.method.plan(program.scene, program.clock).before[0]
    found = play(setting, LoopEngine(setting.work)).store.rows([1, 3])
    for client, steps in ((1, 1), (3, 15)):
        params = setting.first_private(client)["slots"]["private_layers"]
        batches = list(setting.work.single_feed(program, stage, client))
        assert len(batches) == steps
        for done, ((batch,), _) in enumerate(batches):
            leaves = {name: p.clone().requires_grad_() for name, p in params.items()}
            out, _ = setting.task.bare({"model": leaves}, {"model": {}}, batch, True)
            grads = torch.autograd.grad(
                setting.task.criterion({"model": leaves}, batch, out), list(leaves.values())
            )
            rate = 0.05 * factor(done / steps)
            params = {n: p - rate * g for (n, p), g in zip(params.items(), grads, strict=True)}
        assert_equal(found[client]["slots"]["private_layers"], params)


def test_neutral_schedule_and_spelling_change_no_bit() -> None:
    plain = states(_looped("map", {}))
    assert_exact(states(_looped("map", {"optimiser": "sgd()"})), plain)
    flat = states(_looped("map", {"local_schedule": "linear(final=1.0)"}))
    assert_equal(flat, plain)


def test_momentum_belongs_to_sgd_alone() -> None:
    assert_exact(states(_looped("fedavg", ADAM, momentum=0.1)), states(_looped("fedavg", ADAM)))


@pytest.mark.parametrize("name", METHODS)
def test_adam_serves_every_method_or_is_refused_in_a_sentence(name: str) -> None:
    structure = setting_of("fedavg", model="mlpnet(hidden=8)").task.structure
    chosen = read_method(name)
    chosen.check(structure, Scene())
    if (sentence := PLAIN_STEPS.get(name)) is None:
        chosen.check(structure, Scene(optimiser="adam"))
        return
    with pytest.raises(UserError) as refused:
        chosen.check(structure, Scene(optimiser="adam"))
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    "name",
    [
        "scaffold(lr_scale=1.0)",
        "perfedavg_fo(inner_rate=0.01, outer_rate=0.01)",
        "pfedme(inner_rate=0.01)",
    ],
)
def test_method_with_rates_of_its_own_keeps_its_plain_steps(name: str) -> None:
    without = {"weight_decay": 0.0, "momentum": 0.0, "learning_rate": 0.01}
    adam = _looped(name, without | {"optimiser": "adam"})
    assert_exact(states(adam), states(_looped(name, without)))


@pytest.mark.parametrize("name", ["fednova", "scaffold(preset=paper)", "apfl(shared_first=True)"])
def test_what_needs_one_rate_or_sgd_is_refused(name: str) -> None:
    scene = Scene(optimiser="adam") if name.startswith("apfl") else Scene(local_schedule="cosine")
    with pytest.raises(UserError, match=r"set (optimiser to sgd|local_schedule to constant)"):
        read_method(name).check(setting_of("fedavg", model="mlpnet(hidden=8)").task.structure, scene)
