"""What needs a GPU: its kernels are the convolution, and the cohort there is the loop."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from idiolect.core import broadcast
from idiolect.engines import CohortEngine, EngineChoice, LoopEngine
from idiolect.engines.cohort.cuda.compiled_stages import compiling_quietly
from idiolect.engines.cohort.cuda.cuda_graphs import BatchCopier, BatchTable
from idiolect.engines.cohort.cuda.lane_assignment import Layout
from idiolect.engines.cohort.cuda.lane_batch_plans import Planner
from idiolect.engines.cohort.pooling import plain as plain_pool
from idiolect.experiments import run
from idiolect.experiments.finished.joining import join
from idiolect.experiments.finished.recorded_setting import experiment_of as experiment_of_run
from idiolect.experiments.setting import Setting, prepare, read_dataset
from idiolect.models import crop_and_flip, planned_uniform
from idiolect.testing import tiny_dataset

from .cases import ADDED, METHODS, STEPS, spelt
from .sameness import assert_equal, states
from .test_resume import Interrupter
from .test_under import ALL
from .tiny import experiment_of, play

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA GPU here")

# clients, rows, channels in and out, side of the image, of the kernel, padding
LAYERS = [
    (3, 4, 3, 32, 14, 3, 0),
    (2, 5, 32, 64, 9, 3, 1),
    (2, 5, 64, 32, 7, 3, 2),
    (3, 2, 1, 16, 12, 5, 0),
    (2, 3, 16, 16, 12, 5, 2),
    (1, 7, 64, 200, 4, 3, 1),
    (20, 16, 32, 64, 15, 3, 0),  # enough for the device
]


def on_gpu(method: str, **settings: Any) -> Setting:
    return prepare(experiment_of(method, **settings), EngineChoice("cohort", "cuda", "as asked"))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-3), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("layer", LAYERS)
def test_kernels_are_the_convolution(layer: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    clients, rows, n_in, n_out, side, kernel, padding = layer
    torch.manual_seed(0)
    x = torch.randn(clients, rows, n_in, side, side, device="cuda").to(dtype)
    w = torch.randn(clients, n_out, n_in, kernel, kernel, device="cuda").to(dtype)
    y = torch.stack(
        [torch.conv2d(a, b, padding=padding) for a, b in zip(x.double(), w.double(), strict=True)]
    )
    g = torch.randn_like(y).to(dtype)
    pairs = zip(x.double(), g.double(), strict=True)
    gw = [torch.nn.grad.conv2d_weight(a, w.shape[1:], b, padding=padding) for a, b in pairs]
    image, grads = x.permute(0, 1, 3, 4, 2), g.permute(0, 1, 3, 4, 2).contiguous()
    matrix = torch.zeros(clients, n_out * n_in * kernel**2 + 64, device="cuda", dtype=dtype)  # they lie apart
    matrix = matrix[:, :-64].unflatten(1, (n_out, -1)).copy_(w.permute(0, 1, 3, 4, 2).flatten(2))
    ours = torch.ops.idiolect
    _assert_near(ours.convolution(image, matrix, kernel, padding), y.permute(0, 1, 3, 4, 2), tolerance)
    back = [
        torch.nn.grad.conv2d_input(a.shape, b, c, padding=padding)
        for a, b, c in zip(x.double(), w.double(), g.double(), strict=True)
    ]
    by_x, by_weights, by_bias = ours.gradients(image, matrix, grads, kernel, padding)
    _assert_near(by_x, torch.stack(back).permute(0, 1, 3, 4, 2), tolerance)
    _assert_near(by_weights.sum(0), torch.stack(gw).permute(0, 1, 3, 4, 2).flatten(2), tolerance)
    _assert_near(by_bias.sum(0), g.double().sum((1, 3, 4)), tolerance)
    without = ours.gradients(image, None, grads, kernel, padding)
    assert without[0].numel() == 0 and torch.equal(without[1], by_weights)  # bit for bit
    pooled, winner = ours.pooled_convolution(image, matrix, kernel, padding, 2)
    largest = plain_pool(y.flatten(0, 1), 2).unflatten(0, y.shape[:2])
    _assert_near(pooled, largest.permute(0, 1, 3, 4, 2), tolerance)
    size = y.shape[-2:]
    spread = ours.unpool(pooled.flatten(0, 1), winner.flatten(0, 1), 2, *size)
    again = plain_pool(spread.permute(0, 3, 1, 2).clamp(min=0), 2).permute(0, 2, 3, 1)
    torch.testing.assert_close(again, pooled.flatten(0, 1).clamp(min=0))


@pytest.mark.parametrize(("clients", "rows"), [(1, 64), (20, 3)])
def test_kernels_that_overlap_give_what_they_give_one_by_one(clients: int, rows: int) -> None:
    """Each waits for the one before, though it is launched earlier."""
    torch.manual_seed(0)
    ours = torch.ops.idiolect
    image = torch.randn(clients, rows, 32, 32, 32, device="cuda")
    weights = torch.randn(clients, 32, 9 * 32, device="cuda") / 17

    def chain(pause: Callable[[], None]) -> list[Tensor]:
        x, found = image, []
        for _ in range(4):
            y, winner = ours.pooled_convolution(x, weights, 3, 1, 2)
            pause()
            g = ours.unpool(y.flatten(0, 1), winner.flatten(0, 1), 2, 32, 32).unflatten(0, (clients, -1))
            pause()
            x, *by_weights = ours.gradients(x, weights, g, 3, 1)
            pause()
            found += [y, x, *by_weights]
        return found

    expected = chain(torch.cuda.synchronize)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # nothing lies between kernels there
        found = chain(lambda: None)
    for _ in range(20):
        for each in found:
            each.zero_()
        graph.replay()
        for each, one_by_one in zip(found, expected, strict=True):
            assert torch.equal(each, one_by_one)


def _assert_near(found: Tensor, expected: Tensor, tolerance: float) -> None:
    assert float((found.double() - expected).norm() / expected.norm()) < tolerance


def test_kernel_copies_what_is_written_plainly() -> None:
    setting = on_gpu("perfedavg_hf", local_epochs=6)
    program = setting.program(0)
    stage = program.method.plan(program.scene, program.clock).before[0]
    plan = Planner(setting.work).make(program, stage, [0, 1, 2])
    table, cursor = BatchTable(plan, 0), torch.zeros(1, dtype=torch.int64, device="cuda")
    table.load(plan)
    one, other = (BatchCopier(setting.work, plan.shape, table, cursor) for _ in range(2))
    assert one._by_kernel
    one.copy(1)
    other._copy_plainly(1)
    for found, expected in zip((*one.leaves, one.active), (*other.leaves, other.active), strict=True):
        assert torch.equal(found, expected)
    assert any(leaf.any() for leaf in other.leaves)


@pytest.mark.parametrize("name", METHODS)
def test_cohort_equals_loop_on_a_gpu(name: str) -> None:
    setting = on_gpu(spelt(name))
    cohort, loop = (
        play(setting, CohortEngine(setting.work, compile="trace")),
        play(setting, LoopEngine(setting.work)),
    )
    assert_equal(states(cohort), states(loop))


@pytest.mark.parametrize("compile", ["auto", "trace"])
@pytest.mark.parametrize("part", ADDED)
@pytest.mark.parametrize("method", ["fedavg", "map"])
def test_private_and_robust_parts_equal_loop_on_a_gpu(method: str, part: str, compile: str) -> None:
    if "dp" in part:
        pytest.importorskip("dp_accounting", reason="the extra privacy is not installed")
    setting = on_gpu(f"{method} + {part}", model="mlpnet(hidden=8)")
    cohort, loop = (
        play(setting, CohortEngine(setting.work, compile=compile)),
        play(setting, LoopEngine(setting.work)),
    )
    assert_equal(states(cohort), states(loop))


@pytest.mark.parametrize("name", ["fedavg", "map"])
def test_compiled_cohort_equals_loop_on_a_gpu(name: str) -> None:
    setting = on_gpu(name)
    cohort, loop = play(setting, CohortEngine(setting.work)), play(setting, LoopEngine(setting.work))
    assert_equal(states(cohort), states(loop))


# Methods whose steps have forms of their own: further networks, gates, prototypes, mixtures, steps on the server.
FORMS = (
    "fedala",
    "fedas",
    "feddbe",
    "gpfl",
    "fedcp",
    "fedlc",
    "fedntd",
    "fedpac",
    "pfedhn",
    "fedem",
    "fedgh",
    "feddistill",
    "knn_per",
    "ifca",
    "apple",
    "fedgen",
    "fedkd",
    "floco",
)


@pytest.mark.parametrize("name", FORMS)
def test_compiled_forms_of_steps_equal_loop_on_a_gpu(name: str) -> None:
    setting = on_gpu(name, model="mlpnet(hidden=8)")
    cohort, loop = play(setting, CohortEngine(setting.work)), play(setting, LoopEngine(setting.work))
    assert_equal(states(cohort), states(loop))


@pytest.mark.parametrize("name", ["scaffold", "map", "fedamp", "fedgen"])
def test_disturbed_run_with_newcomers_equals_loop_on_a_gpu(name: str) -> None:
    setting = on_gpu(name, under=ALL, newcomers=1)
    cohort, loop = (
        play(setting, CohortEngine(setting.work, compile="trace")),
        play(setting, LoopEngine(setting.work)),
    )
    assert_equal(states(cohort), states(loop))


@pytest.mark.parametrize("store", ["device", "host", "disk"])
@pytest.mark.parametrize("name", ["fedper", "fedamp", "fedgen"])
def test_interrupted_run_goes_on_on_a_gpu_and_others_join_it(name: str, store: str, tmp_path: Path) -> None:
    rows = tiny_dataset(sizes=(10,))
    late, experiment, found = (rows.train_x, rows.train_y), experiment_of(name), []
    for device in ("cpu", "cuda"):
        out = tmp_path / device
        options: dict[str, Any] = {"out": out, "engine": "loop", "device": device, "checkpoint_every": 1}
        with pytest.raises(KeyboardInterrupt):
            run(experiment, watcher=Interrupter(2), store=store, **options)
        done = run(experiment, resume=True, quiet=True, store=store, **options)
        joined = join(done, late, device=device, formats=("weights",))
        found.append((done.model(0).state_dict(), joined.model("new").state_dict()))
    assert_equal(*found)


@pytest.mark.usefixtures("dropping")
@pytest.mark.parametrize("compile", ["auto", "trace"])
@pytest.mark.parametrize("step", STEPS)
def test_augmented_steps_equal_loop_on_a_gpu(step: str, compile: str) -> None:
    """A step that runs without inductor would warn, and warnings are errors."""
    setting = on_gpu("fedavg", **STEPS[step])
    cohort, loop = (
        play(setting, CohortEngine(setting.work, compile=compile)),
        play(setting, LoopEngine(setting.work)),
    )
    assert_equal(states(cohort), states(loop))


@pytest.mark.usefixtures("dropping")
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("tf32", 1e-2), ("bf16", 1e-1)])
def test_augmented_steps_are_compiled_in_every_precision(precision: str, tolerance: float) -> None:
    setting = on_gpu("fedavg", **STEPS["all"], precision=precision)
    cohort, loop = play(setting, CohortEngine(setting.work)), play(setting, LoopEngine(setting.work))
    assert_equal(states(cohort), states(loop), tolerance)


@pytest.mark.usefixtures("dropping")
@pytest.mark.parametrize("method", ["fedavg", "fedper", "ditto", "scaffold"])
@pytest.mark.parametrize("task", ["multilabel", "regression"])
@pytest.mark.parametrize("changes", [{}, STEPS["adamw"], STEPS["all"]], ids=["plain", "adamw", "all"])
def test_tasks_without_classes_equal_loop_on_a_gpu(method: str, task: str, changes: dict[str, Any]) -> None:
    if method == "scaffold" and "optimiser" in changes:
        pytest.skip("SCAFFOLD makes plain steps of its own")
    choice = EngineChoice("cohort", "cuda", "as asked")
    setting = prepare(experiment_of(method, **changes), choice, dataset=tiny_dataset(task=task))
    cohort, loop = play(setting, CohortEngine(setting.work)), play(setting, LoopEngine(setting.work))
    assert_equal(states(cohort), states(loop))


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_a_model_trained_on_a_gpu_is_taken_out_and_predicts_as_recorded(
    precision: str, tmp_path: Path
) -> None:
    done = run(
        "fedper", rounds=2, clients=4, engine="cohort", device="cuda", precision=precision, out=tmp_path
    )
    setting = prepare(
        experiment_of_run(done.manifest["spec"], done.name), EngineChoice("loop", "cpu", "as asked")
    )
    rows = done.rows.query(
        "round == 2 and population == 'all' and metric == 'accuracy' and predictor == 'composed'"
    )
    for client, recorded in rows.set_index("client")["value"].items():
        held = setting.federation.clients[client].test
        raw = read_dataset(done.manifest["dataset"]).train_x[held]
        found = (
            done.model(client)(torch.from_numpy(raw)).argmax(1).numpy() == setting.federation.y[held]
        ).mean()
        assert abs(found - recorded) <= 2 / len(held)


def test_augmented_views_are_the_same_on_a_gpu() -> None:
    """Bit for bit, compiled or not: of images, and of dropout's noise."""
    images, key = torch.randn(9, 3, 12, 12), torch.randint(-(2**63), 2**63 - 1, (9,))
    for function, given in (
        (crop_and_flip, (images, key)),
        (lambda key: planned_uniform(key, 1, 99), (key,)),
    ):
        there = [tensor.cuda() for tensor in given]
        with compiling_quietly():
            compiled = torch.compile(function, fullgraph=True)(*there)
        assert torch.equal(compiled.cpu(), function(*given))
        assert torch.equal(function(*there).cpu(), function(*given))


@pytest.mark.parametrize("layout", [(2, True), (6, True), (2, False), (4, False)], ids=str)
def test_lane_groups_equal_loop_on_a_gpu(layout: tuple[int, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "idiolect.engines.cohort.cuda.lane_batch_plans.choose_layout",
        lambda population, n_clients: Layout(*layout),
    )
    setting = on_gpu("map", participation_rate=1.0, rounds=5)
    cohort, loop = (
        play(setting, CohortEngine(setting.work, compile="trace")),
        play(setting, LoopEngine(setting.work)),
    )
    assert_equal(states(cohort), states(loop))


def test_compiled_lanes_apart_equal_loop_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "idiolect.engines.cohort.cuda.lane_batch_plans.choose_layout",
        lambda population, n_clients: Layout(3, True),
    )
    setting = on_gpu("map", participation_rate=1.0, rounds=5)
    cohort, loop = play(setting, CohortEngine(setting.work)), play(setting, LoopEngine(setting.work))
    assert_equal(states(cohort), states(loop))


def test_lanes_apart_equal_lanes_in_step_in_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = on_gpu("fedavg", model="lenet_map", dataset="tiny(size=28)", precision="tf32")
    found = []
    for apart in (True, False):
        layout = Layout(3, apart)
        monkeypatch.setattr(
            "idiolect.engines.cohort.cuda.lane_batch_plans.choose_layout",
            lambda population, n_clients, chosen=layout: chosen,
        )
        found.append(states(play(setting, CohortEngine(setting.work))))
    assert_equal(*found, 1e-2)


@pytest.mark.parametrize("layout", [(3, False), (3, True)], ids=str)
def test_rounds_repeat_bit_for_bit(layout: tuple[int, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "idiolect.engines.cohort.cuda.lane_batch_plans.choose_layout",
        lambda population, n_clients: Layout(*layout),
    )
    setting = on_gpu("fedavg", model="lenet_map", dataset="tiny(size=28)", precision="tf32")
    one, other = (states(play(setting, CohortEngine(setting.work, compile="trace"))) for _ in range(2))
    assert_equal(one, other, 0.0)


def test_chunks_shrink_when_the_gpu_is_full() -> None:
    many = f"tiny(channels=3, size=32, sizes={(110,) * 48})"
    setting = on_gpu("fedavg", model="tfcnn", dataset=many, clients=48, batch_size=64, precision="tf32")
    sent = broadcast(setting.method, setting.first_server())
    first = {client: setting.first_private(client) for client in range(48)}
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_reserved()
    expected = CohortEngine(setting.work, compile="trace").round(setting.program(0), sent, first, False)
    needed = torch.cuda.max_memory_reserved() - held
    total = torch.cuda.get_device_properties(0).total_memory
    gc.collect()
    torch.cuda.empty_cache()
    try:
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + needed // 2) / total)
        engine = CohortEngine(setting.work, compile="trace")
        found = engine.round(setting.program(0), sent, first, False)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert engine.chunk < 48
    assert_equal(found, expected, 1e-2)
