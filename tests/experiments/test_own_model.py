"""A model of one's own runs like one of the zoo, and on the loop where it cannot be batched."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import idiolect
from idiolect.engines import EngineChoice, choose_engine
from idiolect.engines.worker_calls import batches_well
from idiolect.errors import UserError
from idiolect.experiments import Silent, Simulation, prepare
from idiolect.experiments.identity import hash_of
from idiolect.models import name_of_model
from idiolect.models.registered_models import REGISTERED


class Cnn(nn.Module):
    """Convolutions over a row of eight features, normalised, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, (1, 3), padding=(0, 1)), nn.BatchNorm2d(4)
        self.hidden, self.dropout = nn.Linear(32, 6), nn.Dropout(0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dropout(torch.relu(self.hidden(torch.relu(self.norm(self.conv(x))).flatten(1))))


class ByValue(Cnn):
    """Looks at its numbers, which a batch of clients does not allow."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y if y.sum().item() > 0 else 2 * y


@pytest.fixture(autouse=True)
def _models():
    before = dict(REGISTERED)
    for name, body in (("own_cnn", Cnn), ("by_value", ByValue)):
        idiolect.register_model(name, _builder(body))
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


def _builder(body):
    def build(*, in_channels, image_size, n_classes):
        return idiolect.from_module(body(), nn.Linear(6, n_classes))

    return build


class Listener(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def play(experiment, engine):
    setting = prepare(experiment, EngineChoice(engine, "cpu", "as asked"))
    running = choose_engine(EngineChoice(engine, "cpu", "as asked"), setting.work)
    try:
        simulation = Simulation.start(setting, running)
        for _ in range(experiment.rounds):
            simulation.advance()
        simulation.finish()
    finally:
        running.close()
    return simulation


@pytest.mark.parametrize("method", ["fedavg", "fedper", "map"])
def test_own_model_trains_alike_on_loop_and_cohort(tiny, method):
    experiment = replace(tiny, model="own_cnn", method=method, precision="float64", batch_size=5)
    loop, cohort = (play(experiment, engine) for engine in ("loop", "cohort"))
    states = [{**s.server["params"], **s.server["buffers"]} for s in (loop, cohort)]
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        scale = max(float(value.abs().max()), 1e-3)
        torch.testing.assert_close(states[1][name], value, rtol=0, atol=1e-9 * scale, msg=name)
    first = loop.setting.first_server()
    before = {**first["params"], **first["buffers"]}
    still = {n for n, v in states[0].items() if torch.equal(v, before[n])}
    assert still <= {"units.0.module.conv.bias"}  # normalisation takes it out again


def test_model_that_cannot_be_batched_runs_on_the_loop_saying_so(tiny, tmp_path):
    listener = Listener()
    experiment = replace(tiny, model="by_value")
    done = idiolect.run(experiment, out=tmp_path, engine="cohort", device="cpu", watcher=listener)
    assert done.manifest["engine"]["engine"] == "loop"
    assert "the model cannot be batched" in done.manifest["engine"]["reason"]
    (line,) = listener.said
    assert line.startswith("engine loop on cpu: client by client, because the model cannot be batched: its")


def test_model_that_can_be_batched_stays_on_the_cohort(tiny, tmp_path):
    listener = Listener()
    experiment = replace(tiny, model="own_cnn")
    done = idiolect.run(experiment, out=tmp_path, engine="cohort", device="cpu", watcher=listener)
    assert done.manifest["engine"]["engine"] == "cohort" and not listener.said
    assert done.manifest["parameters"] == 4 * 3 + 4 + 8 + 32 * 6 + 6 + 6 * 3 + 3


def test_module_is_a_model_with_its_own_values(tiny, tmp_path):
    module = nn.Sequential(nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    done, again = (
        idiolect.run(replace(tiny, rounds=1), model=module, out=tmp_path, engine="loop") for _ in range(2)
    )
    assert done.manifest["model"].startswith("sequential_") and again.manifest == done.manifest
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    first = prepare(replace(tiny, model=done.manifest["model"], seed=7), EngineChoice("loop", "cpu", ""))
    found = first.first_server()["params"]
    assert torch.equal(found["units.1.linear.weight"], module[3].weight)
    nn.init.zeros_(module[1].weight)
    other = idiolect.run(replace(tiny, rounds=1), model=module, out=tmp_path, engine="loop")
    assert other.manifest["name"] != done.manifest["name"]


def test_builder_is_a_model_and_its_pretrained_values_are_part_of_the_run(tiny):
    start = 0.5

    def net(outputs):
        module = nn.Sequential(nn.Flatten(), nn.Linear(8, 4), nn.Linear(4, outputs))
        nn.init.constant_(module[1].weight, start)
        return module

    assert name_of_model(net) == "net"
    experiment = replace(tiny, model="net")
    first = hash_of(experiment)
    assert hash_of(replace(experiment, seed=5)) == first
    start = 0.25
    assert hash_of(experiment) != first


def test_pool_runs_a_model_that_cannot_be_batched_client_by_client(tiny):
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Linear(8, 6)

        def forward(self, x):
            return torch.relu(self.hidden(x.flatten(1) + 0.1 * torch.rand(8) * self.training))

    idiolect.register_model("noisy", _builder(Noisy))
    experiment = replace(tiny, model="noisy", precision="float64")
    state = torch.get_rng_state()
    loop, pool = (play(experiment, engine) for engine in ("loop", "pool"))
    assert torch.equal(torch.get_rng_state(), state)
    reason = loop.setting.cannot_batch
    assert reason == "it draws random numbers of its own"
    assert not batches_well(loop.setting.work, loop.setting.program(0))
    chosen = EngineChoice("pool", "cpu", "as asked").for_network(reason)
    assert (
        str(chosen) == f"engine pool on cpu: client by client, because the model cannot be batched: {reason}"
    )
    for name, value in loop.server["params"].items():
        torch.testing.assert_close(pool.server["params"][name], value, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.slow
def test_pool_takes_a_model_whose_weights_are_computed(tiny):
    def computed(outputs):
        hidden = nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))
        return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(4, outputs))

    experiment = replace(tiny, model=name_of_model(computed), precision="float64")
    loop, pool = (play(experiment, engine) for engine in ("loop", "pool"))
    for name, value in loop.server["params"].items():
        torch.testing.assert_close(pool.server["params"][name], value, rtol=1e-9, atol=1e-12, msg=name)


def test_method_that_needs_a_head_refuses_a_network_without_one(tiny):
    module = nn.Sequential(nn.Flatten(), nn.Linear(8, 4), nn.Linear(4, 3), nn.LogSoftmax(-1))
    experiment = replace(tiny, model=name_of_model(module))
    prepare(experiment, EngineChoice("loop", "cpu", "as asked"))
    for method in ("fedper", "map", "fedproto", "moon"):
        with pytest.raises(UserError, match="needs a network with a head, and none is found in this one"):
            prepare(replace(experiment, method=method), EngineChoice("loop", "cpu", "as asked"))


def test_own_model_that_does_not_fit_the_data_is_refused_before_training(tiny):
    wider = "synthetic(n_clients=4, samples_per_client=20, n_features=9, n_classes=3)"
    with pytest.raises(UserError, match=r"the model fails on inputs of .*: RuntimeError"):
        prepare(replace(tiny, model="own_cnn", dataset=wider), EngineChoice("loop", "cpu", "as asked"))


def test_net_of_tokens_is_refused_on_numbers_that_are_none(tiny):
    with pytest.raises(UserError, match=r"char_lstm reads tokens 0..80 and the data hold numbers from -"):
        prepare(replace(tiny, model="char_lstm"), EngineChoice("loop", "cpu", "as asked"))
