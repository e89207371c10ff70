"""Every network of the zoo trains alike on one client at a time and on a cohort."""

from __future__ import annotations

import pytest

from idiolect import models
from idiolect.core import broadcast
from idiolect.engines import CohortEngine, EngineChoice, LoopEngine
from idiolect.errors import UserError
from idiolect.experiments.setting import Setting, prepare
from idiolect.methods import names

from .cases import spelt
from .sameness import assert_equal, privates, states
from .tiny import experiment_of, make_engine, play

ZOO = {row.name: row.image_shape for row in models.describe()}
# smaller than the standard ones, for speed; larger where the last maps would be single pixels, as batch normalisation
# over two or three values multiplies rounding
SIDES = {"resnet20": 8, "resnet56": 8, "resnet34": 8, "mobilenet_v1": 48, "leaf_cnn": 8, "femnistnet": 12}
TWO_CLIENTS = (7, 8)  # 5 and 6 training rows


def small(model: str, method: str, **settings: object) -> Setting:
    """Two clients with two batches each, the last of them short for one."""
    channels, size, _ = ZOO[model]
    shape = f"channels={channels}, size={SIDES.get(model, size)}" if model != "char_lstm" else "tokens=7"
    dataset = f"tiny({shape}, sizes={TWO_CLIENTS})"
    few = {"clients": 2, "participation_rate": 1.0, "batch_size": 3, "rounds": 1, **settings}
    experiment = experiment_of(method, model=model, dataset=dataset, **few)
    return prepare(experiment, EngineChoice("loop", "cpu", "as asked"))


LARGE = {"resnet34", "resnet56", "vgg11", "vgg11_fc", "vgg16_bn", "mobilenet_v1"}  # seconds with MAP
PAIRS = [
    pytest.param(model, method, marks=[pytest.mark.slow] if model in LARGE else [])
    for model in ZOO
    for method in ("fedavg", "map")
]


@pytest.mark.parametrize(("model", "method"), PAIRS)
def test_models_train_alike_on_loop_and_cohort(model: str, method: str) -> None:
    """FedAvg makes one step, MAP one before and one after the upload."""
    setting = small(model, method, local_epochs=0.5 if method == "fedavg" else 1)
    sent = broadcast(setting.method, setting.first_server())
    first = {client: setting.first_private(client) for client in (0, 1)}
    calls = [
        make_engine(e, setting).round(setting.program(0), sent, first, False) for e in ("loop", "cohort")
    ]
    loop, cohort = calls
    assert_equal(cohort, loop)


@pytest.mark.parametrize(
    "model", ["char_lstm", pytest.param("mobilenet_v1", marks=pytest.mark.slow), "lenet_bn"]
)
def test_models_train_alike_on_lanes(model: str) -> None:
    """Embeddings and groups, whose weights of all clients are looked at as one; and statistics."""
    setting = small(model, "fedavg", local_epochs=0.5)
    sent = broadcast(setting.method, setting.first_server())
    first = {client: setting.first_private(client) for client in (0, 1)}
    engines = LoopEngine(setting.work), CohortEngine(setting.work, compile="trace")
    loop, lanes = (engine.round(setting.program(0), sent, first, False) for engine in engines)
    assert_equal(lanes, loop)


@pytest.mark.parametrize("compile", ["flat", "trace"])
def test_transfer_below_the_linear_layers_is_traced_as_it_is_run(compile: str) -> None:
    """FedPHP compares what enters the first of several linear layers; in the second step that differs."""
    setting = small("leaf_cnn", "fedphp(transfer=l2, hpm_init=theta0, transfer_weight=0.5)")
    sent = broadcast(setting.method, setting.first_server())
    first = {client: setting.first_private(client) for client in (0, 1)}
    engines = LoopEngine(setting.work), CohortEngine(setting.work, compile=compile)
    loop, traced = (engine.round(setting.program(0), sent, first, False) for engine in engines)
    assert_equal(traced, loop)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["cohort", "pool"])
@pytest.mark.parametrize("model", ZOO)
@pytest.mark.parametrize("name", names())
def test_every_method_runs_alike_on_every_model(name: str, model: str, engine: str) -> None:
    try:
        setting = small(model, spelt(name), rounds=2)
    except UserError as refusal:
        pytest.skip(f"refused by name: {refusal}")
    loop, other = (play(setting, make_engine(e, setting)) for e in ("loop", engine))
    assert len(privates(loop)) == 2
    assert_equal(states(other), states(loop))
