"""Running statistics of a user's layers are recomputed by their own momentum, and nothing else is reset."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn
from torch.nn.utils import parametrizations

from idiolect.core import Batch, Model
from idiolect.core.measures import recalibration
from idiolect.engines import make_task
from idiolect.models import build
from idiolect.models.registered_models import REGISTERED


def recalibrated(module: nn.Module) -> dict[str, torch.Tensor]:
    REGISTERED["mine"] = lambda: module
    try:
        net = build("mine", (5,), 3)
    finally:
        del REGISTERED["mine"]
    task, tensors = make_task(net), dict((*net.named_parameters(), *net.named_buffers()))
    model = Model(*({n: tensors[n].detach() for n in names} for names in task.structure[:2]))
    view = SimpleNamespace(task=task, facts=SimpleNamespace(samples=torch.tensor(8.0)))
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    ones = torch.ones(8)
    fold = recalibration()
    found = fold.add(fold.init(model, view), model, Batch(x, ones.long(), ones, ones.long(), {}), view)
    return found["buffers"]


def test_momentum_of_a_layer_has_no_part_in_its_recomputed_statistics():
    def normalised(momentum: float) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(5, momentum=momentum), nn.Linear(5, 3))

    usual, slow = recalibrated(normalised(0.1)), recalibrated(normalised(0.01))
    assert usual.keys() == slow.keys() and len(usual) == 2
    for name, value in usual.items():
        torch.testing.assert_close(slow[name], value, rtol=1e-5, atol=1e-6)
        assert value.abs().sum() > 0.1


def test_vectors_of_spectral_norm_are_kept():
    layer = parametrizations.spectral_norm(nn.Linear(5, 4))
    before = {name: value.clone() for name, value in layer.named_buffers()}
    found = recalibrated(nn.Sequential(layer, nn.BatchNorm1d(4), nn.Linear(4, 3)))
    kept = {name.rpartition(".")[2]: value for name, value in found.items() if "parametrizations" in name}
    assert len(kept) == len(before) == 2 and len(found) == 4
    for name, value in before.items():
        assert torch.equal(kept[name.rpartition(".")[2]], value)
