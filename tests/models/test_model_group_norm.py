"""Group normalisation of rows whose channels lie last, after a layer without gradients."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn

from idiolect.models import BatchContext, from_module

CRASHES = """
import torch
from torch import nn
from idiolect.models import BatchContext, from_module

frozen = nn.Conv2d(2, 4, 3).requires_grad_(False)
net = from_module(nn.Sequential(frozen, nn.GroupNorm(2, 4), nn.ReLU()), nn.Linear(4 * 36, 3)).double()
x = torch.randn(5, 2, 8, 8, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
net(x, BatchContext.plain(5, net.n_units)).logits.square().sum().backward()
print(float(net.units[0].module[1].weight.grad.abs().sum()) > 0)
"""


def test_gradients_of_group_normalisation_after_a_frozen_layer_do_not_end_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASHES], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_group_normalisation_computes_what_it_did() -> None:
    layer = nn.GroupNorm(2, 4)
    net = from_module(nn.Sequential(layer, nn.Flatten()), nn.Linear(4 * 36, 3)).double()
    x = torch.randn(5, 4, 6, 6, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    found = net(x, BatchContext.plain(5, net.n_units)).features
    torch.testing.assert_close(found, layer.double()(x).flatten(1), rtol=1e-12, atol=1e-12)
