"""A run starts from the values of the user's builder, and frozen tensors never move and never travel."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import idiolect
from idiolect.core import Batch
from idiolect.core.gradient import _modes
from idiolect.core.trees import tree_leaves
from idiolect.engines import (
    CohortEngine,
    Engine,
    EngineChoice,
    LoopEngine,
    PoolEngine,
    initial_net,
    structure_of,
)
from idiolect.errors import UserError
from idiolect.experiments import Simulation, prepare
from idiolect.experiments.setting import Setting
from idiolect.methods import names
from idiolect.models import BatchContext, name_of_model
from idiolect.models.registered_models import REGISTERED

LOOP = EngineChoice("loop", "cpu", "as asked")
FROZEN = "units.0.module.1.weight"
FEATURES = 8  # of the tiny data
FEW = ("fedavg", "scaffold", "fedper", "superfed_mm", "map", "fedcurv", "apfl", "fedadam", "feddf")


@pytest.fixture(autouse=True)
def _models():
    before = dict(REGISTERED)
    idiolect.register_model("half_frozen", half_frozen)
    idiolect.register_model("pretrained", pretrained)
    idiolect.register_model("drawn", drawn)
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


def half_frozen(*, in_channels, image_size, n_classes):
    body = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU())
    body[1].weight.requires_grad_(False)
    return idiolect.from_module(body, nn.Linear(5, n_classes))


def pretrained(*, in_channels, image_size, n_classes):
    body = nn.Sequential(nn.Flatten(), nn.LayerNorm(FEATURES), nn.Linear(FEATURES, 6), nn.PReLU())
    head = nn.Linear(6, n_classes)
    with torch.no_grad():
        for parameter in (*body.parameters(), *head.parameters()):
            parameter.copy_(torch.linspace(-0.5, 0.7, parameter.numel()).reshape(parameter.shape))
    return idiolect.from_module(body, head)


def drawn(*, in_channels, image_size, n_classes):
    body = nn.Sequential(nn.Flatten(), nn.LayerNorm(FEATURES), nn.Linear(FEATURES, 6), nn.PReLU(init=0.4))
    return idiolect.from_module(body, nn.Linear(6, n_classes))


def experiment_of(tiny, method, **settings):
    public = 6 if idiolect.method(method).needs_public else 0
    return replace(tiny, method=method, precision="float64", public=public, **settings)


def played(setting: Setting, engine: Engine) -> Simulation:
    try:
        simulation = Simulation.start(setting, engine)
        for _ in range(setting.experiment.rounds):
            simulation.advance()
        simulation.finish()
    finally:
        engine.close()
    return simulation


def test_run_starts_from_the_builders_values_which_follow_the_seed(tiny):
    state = torch.get_rng_state()
    first, again, other = (
        prepare(replace(tiny, model="drawn", seed=seed), LOOP).first_server()["params"] for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert first["units.0.module.3.weight"].tolist() == [pytest.approx(0.4)]
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(first["units.0.module.2.weight"], other["units.0.module.2.weight"])


def test_further_initialisations_come_from_the_builder_too(tiny):
    initial = prepare(replace(tiny, model="drawn"), LOOP).initial
    name = "units.0.module.2.weight"
    ours, theirs = (initial(client).draw("second", True).params for client in (0, 1))
    assert ours["units.0.module.3.weight"].tolist() == [pytest.approx(0.4)]
    assert not torch.equal(ours[name], theirs[name]) and not torch.equal(ours[name], initial(0).params[name])
    assert torch.equal(ours[name], initial(0).draw("second", True).params[name])


@pytest.mark.parametrize("scheme", ["default", "map"])
def test_pretrained_values_stay_whatever_the_seed(tiny, scheme):
    for seed in (0, 5):
        setting = prepare(replace(tiny, model="pretrained", seed=seed, initialisation=scheme), LOOP)
        found = setting.first_server()["params"]
        kept = {"units.0.module.1.weight", "units.0.module.3.weight"} if scheme == "map" else set(found)
        for name in kept:
            expected = torch.linspace(-0.5, 0.7, found[name].numel()).reshape(found[name].shape)
            torch.testing.assert_close(found[name], expected, msg=name)
    if scheme == "map":
        assert not found["units.1.linear.bias"].any()


@pytest.mark.parametrize(
    "method", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in names()]
)
def test_frozen_tensors_are_in_no_state_and_no_message(tiny, method):
    setting = prepare(experiment_of(tiny, method, model="half_frozen"), LOOP)
    assert FROZEN not in setting.task.structure.params
    assert setting.n_parameters == 6 + 6 * 5 + 5 + 5 * setting.inputs.n_classes + setting.inputs.n_classes
    shape = (6, FEATURES)
    for form in setting.forms:
        for tree in (*form.privates, *form.broadcasts, form.messages):
            assert all(tuple(leaf.shape[-2:]) != shape for leaf in tree_leaves(tree))


@pytest.mark.parametrize(
    ("method", "engine"),
    [
        *((method, "cohort") for method in ("fedavg", "scaffold", "fedper", "superfed_mm", "map")),
        ("fedavg", "traced"),
        pytest.param("map", "traced", marks=pytest.mark.slow),
    ],
)
def test_frozen_tensors_compute_alike_on_engines(tiny, method, engine):
    experiment = experiment_of(tiny, method, model="half_frozen", weight_decay=0.1)
    setting = prepare(experiment, LOOP)
    loop = played(setting, LoopEngine(setting.work))
    other = played(setting, CohortEngine(setting.work, compile="none" if engine == "cohort" else "flat"))
    first = setting.first_server()["params"]
    assert FROZEN not in first and not torch.equal(
        first["units.0.module.1.bias"], loop.server["params"]["units.0.module.1.bias"]
    )
    for name, value in loop.server["params"].items():
        torch.testing.assert_close(other.server["params"][name], value, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.slow
def test_frozen_tensors_compute_alike_in_worker_processes(tiny):
    setting = prepare(experiment_of(tiny, "fedavg", model="half_frozen"), EngineChoice("pool", "cpu", ""))
    loop, pool = (played(setting, e) for e in (LoopEngine(setting.work), PoolEngine(setting.work, 2)))
    for name, value in loop.server["params"].items():
        torch.testing.assert_close(pool.server["params"][name], value, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_task_computes_with_the_frozen_values_of_its_network(tiny, precision):
    setting = prepare(
        replace(tiny, model="half_frozen", precision=str(precision).removeprefix("torch.")), LOOP
    )
    net = initial_net("half_frozen", (1, 1, FEATURES), 3, "default", tiny.seed).to(precision)
    x = torch.randn(4, 1, 1, FEATURES, dtype=precision)
    ones = torch.ones(4, dtype=precision)
    batch = Batch(x, ones.long(), ones, ones.long(), {})
    model = setting.initial(0)
    found = setting.task.forward(model.params, model.buffers, batch, False)[0].logits
    torch.testing.assert_close(found, net(x, BatchContext.plain(4, 2)).logits)


def test_unit_that_trains_nothing_runs_in_eval_mode_and_keeps_its_statistics(tiny):
    def still(*, n_classes, in_channels, image_size):
        body = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 6), nn.BatchNorm1d(6), nn.Dropout(0.5))
        return idiolect.from_module(body.requires_grad_(False), nn.Linear(6, n_classes))

    idiolect.register_model("still", still)
    setting = prepare(replace(tiny, model="still"), LOOP)
    structure = setting.task.structure
    assert not structure.buffers and structure.params == ("units.1.linear.weight", "units.1.linear.bias")
    assert _modes({1}, structure) == (False, True)


def test_unit_without_parameters_trains_with_the_one_after_it():
    net = idiolect.from_module([nn.Flatten(), nn.Linear(4, 4), nn.Dropout(0.5)], nn.Linear(4, 2))
    structure = structure_of(net)
    assert _modes({1, 3}, structure) == (True, True, True, True)
    assert _modes({3}, structure) == (False, False, True, True)
    assert _modes({1}, structure) == (True, True, False, False)


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("fedper", "trains no parameter of so many units"),
        ("lg_fedavg", "trains no parameter of so many units"),
        ("fedrs", "single linear layer and trained"),
    ],
)
def test_method_that_works_on_the_head_refuses_a_frozen_one(tiny, method, sentence):
    module = nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 6), nn.ReLU(), nn.Linear(6, 3))
    module[3].requires_grad_(False)
    experiment = experiment_of(tiny, method, model=name_of_model(module))
    with pytest.raises(UserError, match=sentence):
        prepare(experiment, LOOP)
