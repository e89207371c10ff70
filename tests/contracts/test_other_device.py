"""Every method computes on another device what it computes on the CPU, and mixes tensors of the two nowhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from idiolect.core import Loss, Part, View, chain
from idiolect.engines import CohortEngine, Engine, EngineChoice, LoopEngine
from idiolect.engines.client_packing import BATCHED_LAYERS
from idiolect.experiments import Execution, FinishedRun, run
from idiolect.experiments.finished.joining import JoinedClients, join
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting, prepare
from idiolect.methods import method as read_method
from idiolect.methods import names
from idiolect.records import find_checkpoint
from idiolect.testing import tiny_dataset

from .cases import ADDED, METHODS, STEPS, spelt
from .other_device import OTHER, brought_home, other_device
from .sameness import assert_exact, digest, leaves, numbers, states
from .test_resume import Interrupter
from .test_under import ALL
from .tiny import experiment_of, play

SIZES = (14, 5, 9)
SMALL: dict[str, Any] = {
    "dataset": f"tiny(sizes={SIZES})",
    "clients": len(SIZES),
    "model": "mlpnet(hidden=4)",
    "participation_rate": 0.67,
    "batch_size": 4,
    "rounds": 2,
    "evaluate_every": 2,
}
QUICK = set(names()) - {"persfl_gd", "superfed_lm"}  # which differ little from others and take long


def in_turn(cases: Iterable[str], quick: Collection[str]) -> list[Any]:
    return [pytest.param(case, marks=[] if case in quick else [pytest.mark.slow]) for case in cases]


def on(device: str) -> EngineChoice:
    return EngineChoice("loop", device, "as asked")


def cohort(setting: Setting) -> Engine:
    """The engine ``cohort`` as it is on a GPU that compiles nothing."""
    engine = CohortEngine(setting.work, compile="none")
    engine._traced, engine._packing = None, BATCHED_LAYERS
    return engine


def loop(setting: Setting) -> Engine:
    return LoopEngine(setting.work)


def assert_same_on_both(
    method: str, make_engine: Callable[[Setting], Engine] = loop, task: str = "", **settings: Any
) -> None:
    """Raises unless a run on the other device holds there, bit for bit, what it holds on the CPU."""
    dataset = tiny_dataset(sizes=SIZES, task=task) if task else None

    def played(device: str) -> Simulation:
        experiment = experiment_of(method, **{**SMALL, **settings})
        setting = prepare(experiment, on(device), dataset=dataset)
        return play(setting, make_engine(setting))

    expected = played("cpu")
    with other_device():
        found = played(OTHER)
        held = states(found)
    assert {leaf.device.type for leaf in leaves(held).values()} == {OTHER}
    assert_exact(brought_home(held), states(expected))
    assert str(numbers(found)) == str(numbers(expected))  # NaN is what it was


@pytest.mark.parametrize("name", in_turn(METHODS, QUICK))
def test_method_computes_there_what_it_computes_on_the_cpu(name: str) -> None:
    assert_same_on_both(spelt(name))


@pytest.mark.parametrize("name", in_turn(METHODS, ("fedamp",)))
def test_cohort_with_newcomers_computes_there(name: str) -> None:
    assert_same_on_both(spelt(name), cohort, model="lenet_bn", newcomers=1)


@pytest.mark.parametrize("part", ADDED)
@pytest.mark.parametrize("name", in_turn(("fedavg", "map"), ("fedavg",)))
def test_private_and_robust_parts_compute_there(name: str, part: str) -> None:
    if "dp" in part:
        pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")
    assert_same_on_both(f"{name} + {part}", participation_rate=1.0)


OWN_STEPS = [
    step for step in STEPS if step != "frozen"
]  # its constants are moved outside of every mode of PyTorch


@pytest.mark.parametrize("make_engine", [loop, pytest.param(cohort, marks=pytest.mark.slow)])
@pytest.mark.parametrize("step", in_turn(OWN_STEPS, ("adamw", "all")))
@pytest.mark.usefixtures("dropping")
def test_augmented_steps_compute_there(step: str, make_engine: Callable[[Setting], Engine]) -> None:
    assert_same_on_both("fedavg", make_engine, **STEPS[step])


SETTINGS: dict[str, dict[str, Any]] = {
    "disturbances": {"under": ALL, "participation_rate": 1.0, "rounds": 3},
    "private statistics": {"buffers": "private", "model": "lenet_bn"},
    "poisson": {"selection": "poisson", "weighting": "uniform"},
    "calibration": {"calibration": "per_batch"},
    "tokens": {"dataset": f"tiny(tokens=7, sizes={SIZES})", "model": "char_lstm(hidden=4)"},
    "float32": {"precision": "float32"},
    "bf16": {"precision": "bf16"},
}


@pytest.mark.parametrize("setting", in_turn(SETTINGS, ("disturbances", "poisson")))
@pytest.mark.parametrize("name", in_turn(("scaffold", "fedfomo"), ("scaffold",)))
def test_settings_compute_there(name: str, setting: str) -> None:
    assert_same_on_both(name, **SETTINGS[setting])


@pytest.mark.parametrize("task", [pytest.param("multilabel", marks=pytest.mark.slow), "regression"])
def test_tasks_without_classes_compute_there(task: str) -> None:
    assert_same_on_both("ditto", task=task, partition="by_id")


# ---- whole runs: rows on disk, a checkpoint, the models of a finished run, and clients that join it


@pytest.mark.parametrize("name", in_turn(METHODS, ("fedamp",)))
def test_interrupted_run_goes_on_there_and_others_join_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = experiment_of(spelt(name), **SMALL)
    rows = tiny_dataset(sizes=(10,))
    late = rows.train_x, rows.train_y
    whole = run(experiment, out=tmp_path / "here", engine="loop", store="disk", quiet=True)
    expected = _content(whole, join(whole, late, device="cpu", formats=("weights",)))
    monkeypatch.setattr(Execution, "engine_choice", lambda execution: on(OTHER))
    options: dict[str, Any] = {"out": tmp_path / "there", "store": "disk", "checkpoint_every": 1}
    with other_device():
        with pytest.raises(KeyboardInterrupt):
            run(experiment, watcher=Interrupter(2), **options)
        done = run(experiment, resume=True, quiet=True, **options)
        found = _content(done, join(done, late, formats=("weights",)))
    assert found == expected


def _content(done: FinishedRun, joined: JoinedClients) -> tuple[Any, ...]:
    """All numbers of a run, of its first client's model, and of a client that joined it."""
    checkpoint = find_checkpoint(done.folder)
    assert checkpoint is not None and checkpoint.round == SMALL["rounds"]
    tensors = {
        "server": checkpoint.tree["server"],
        "model": done.model(0).state_dict(),
        "joined": joined.model("new").state_dict(),
    }
    return done.rows.to_dict("records"), joined.rows.to_dict("records"), digest(tensors)


# ---- the device itself


@pytest.mark.parametrize(
    "mixed",
    [
        lambda there: there + torch.zeros(3),
        lambda there: torch.ones(3).add_(there),
        lambda there: torch.stack([there.sum(), torch.zeros(())]),
        lambda there: there.index_select(0, torch.tensor([0])),
        lambda there: torch.ones(3)[there.long()],
        lambda there: there @ torch.eye(3),
        lambda there: there + torch.zeros(3, device="meta"),
        lambda there: torch.autograd.functional.jvp(lambda x: x * torch.ones(3), there, there),
        lambda there: vmap(lambda x: x * torch.ones(2))(there),
        lambda there: there.numpy(),
        lambda there: torch.rand(3, device=OTHER),
    ],
)
def test_tensors_of_two_devices_do_not_mix(mixed: Callable[[Tensor], Any]) -> None:
    with other_device():
        there = torch.zeros(3, device=OTHER)
        with pytest.raises((RuntimeError, TypeError), match=r"on one device|draws numbers|numpy"):
            mixed(there)


def test_what_a_gpu_allows_is_allowed() -> None:
    with other_device():
        there = torch.arange(3.0, device=OTHER)
        found = [
            there * torch.tensor(2.0),
            torch.where(there > 1, torch.zeros(()), there),
            there[torch.tensor([2, 1])],
            there.new_tensor([1.0, 2.0]),
            torch.zeros(3).to(there).copy_(torch.ones(3)),
        ]
        assert [each.device.type for each in found] == [OTHER] * len(found)
        assert [each.tolist() for each in found] == [[0, 2, 4], [0, 1, 0], [2, 1], [1, 2], [1, 1, 1]]
        assert torch.zeros(3).copy_(there).device.type == there.cpu().device.type == "cpu"


def test_part_that_makes_a_tensor_on_the_cpu_is_found() -> None:
    """The dry round does not find it, which for FedAMP computes on the CPU."""

    def careless(inner: Loss, view: View) -> Loss:
        return lambda params, batch, out: (
            inner(params, batch, out) + (batch.mask * torch.zeros(len(batch.mask))).sum()
        )

    method = chain(*read_method("fedamp").parts, Part("careless", loss=careless))
    with other_device():
        setting = replace(prepare(experiment_of("fedamp", **SMALL), on(OTHER)), method=method)
        with pytest.raises(RuntimeError, match=r"aten.mul.Tensor: tensors must be on one device"):
            play(setting, LoopEngine(setting.work))
