"""What needs a GPU: its kernels are the convolution, and the cohort there is the loop."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import Tensor

from idiolect.core import broadcast
from idiolect.engines import Cohort, Loop, Where
from idiolect.experiments.setting import Setting, prepare
from idiolect.layers.pooling import plain as plain_pool

from .cases import METHODS, spelt
from .sameness import assert_equal, states
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
]


def on_gpu(method: str, **settings: Any) -> Setting:
    return prepare(experiment_of(method, **settings), Where("cohort", "cuda", "as asked"))


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
    matrix = w.permute(0, 1, 3, 4, 2).flatten(2).contiguous()
    ours = torch.ops.idiolect
    _assert_near(ours.convolution(image, matrix, kernel, padding), y.permute(0, 1, 3, 4, 2), tolerance)
    found = ours.weight_gradient(image, grads, kernel, padding)
    _assert_near(found, torch.stack(gw).permute(0, 1, 3, 4, 2).flatten(2), tolerance)
    pooled, winner = ours.pooled_convolution(image, matrix, kernel, padding, 2)
    largest = plain_pool(y.flatten(0, 1), 2).unflatten(0, y.shape[:2])
    _assert_near(pooled, largest.permute(0, 1, 3, 4, 2), tolerance)
    size = y.shape[-2:]
    spread = ours.unpool(pooled.flatten(0, 1), winner.flatten(0, 1), 2, *size)
    back = plain_pool(spread.permute(0, 3, 1, 2).clamp(min=0), 2).permute(0, 2, 3, 1)
    torch.testing.assert_close(back, pooled.flatten(0, 1).clamp(min=0))
    assert torch.equal(found, ours.weight_gradient(image, grads, kernel, padding))  # bit for bit


def _assert_near(found: Tensor, expected: Tensor, tolerance: float) -> None:
    assert float((found.double() - expected).norm() / expected.norm()) < tolerance


@pytest.mark.parametrize("name", METHODS)
def test_cohort_equals_loop_on_a_gpu(name: str) -> None:
    setting = on_gpu(spelt(name))
    cohort, loop = play(setting, Cohort(setting.work, compile="trace")), play(setting, Loop(setting.work))
    assert_equal(states(cohort), states(loop))


@pytest.mark.parametrize("name", ["fedavg", "map"])
def test_compiled_cohort_equals_loop_on_a_gpu(name: str) -> None:
    setting = on_gpu(name)
    cohort, loop = play(setting, Cohort(setting.work)), play(setting, Loop(setting.work))
    assert_equal(states(cohort), states(loop))


def test_rounds_repeat_bit_for_bit() -> None:
    setting = on_gpu("fedavg", model="lenet_map", dataset="tiny(size=28)", precision="tf32")
    one, other = (states(play(setting, Cohort(setting.work, compile="trace"))) for _ in range(2))
    assert_equal(one, other, 0.0)


def test_chunks_shrink_when_the_gpu_is_full() -> None:
    many = f"tiny(channels=3, size=32, sizes={(110,) * 48})"
    setting = on_gpu("fedavg", model="tfcnn", dataset=many, clients=48, batch_size=64, precision="tf32")
    sent = broadcast(setting.method, setting.first_server())
    first = {client: setting.first_private(client) for client in range(48)}
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_reserved()
    expected = Cohort(setting.work, compile="trace").round(setting.program(0), sent, first, False)
    needed = torch.cuda.max_memory_reserved() - held
    total = torch.cuda.get_device_properties(0).total_memory
    gc.collect()
    torch.cuda.empty_cache()
    try:
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + needed // 2) / total)
        engine = Cohort(setting.work, compile="trace")
        found = engine.round(setting.program(0), sent, first, False)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert engine.chunk < 48
    assert_equal(found, expected, 1e-2)
