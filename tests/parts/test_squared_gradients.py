"""Sums of squared gradients against one example after the other in plain autograd."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import vmap

from idiolect.core import Batch, Model
from idiolect.engines import make_task
from idiolect.models import from_module
from idiolect.parts import squared_gradients as room
from idiolect.parts.squared_gradients import squared_gradients

SHAPE, CLASSES, ROWS = (2, 7, 6), 3, 5


class Twice(nn.Module):
    """A layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(84, 84)

    def forward(self, x):
        return self.layer(torch.tanh(self.layer(x.flatten(1))))


class Positions(nn.Module):
    """A linear layer on every position: as rows of their own, or on an axis in between."""

    def __init__(self, as_rows):
        super().__init__()
        self.layer, self.as_rows = nn.Linear(2, 4), as_rows

    def forward(self, x):
        positions = x.flatten(2).transpose(1, 2)  # [B, 42, 2]
        y = self.layer(positions.reshape(-1, 2) if self.as_rows else positions)
        return torch.tanh(y).reshape(len(x), -1)


class Elsewhere(nn.Module):
    """A weight that serves beside its layer, a bias that serves in two layers, and a parameter of no layer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(84, 5), nn.Linear(84, 5)
        self.scale = nn.Parameter(torch.ones(5))

    def forward(self, x):
        x = x.flatten(1)
        both = self.first(x) + F.linear(x, self.second.weight, self.first.bias) + self.second.bias
        return torch.tanh(both * self.scale) + self.first.weight.mean()


class Tied(nn.Module):
    """A layer whose weight serves a second time, as ``again`` says."""

    def __init__(self, again):
        super().__init__()
        self.layer, self.again = nn.Linear(84, 5), again

    def forward(self, x):
        x = x.flatten(1)
        h = torch.tanh(self.layer(x))
        return self.again(x, h, self.layer)


class ByName(nn.Module):
    """A layer that is given its arguments by name."""

    def __init__(self, layer, function):
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x):
        x = x.flatten(1) if self.function is F.linear else x
        return torch.tanh(self.function(input=x, bias=self.layer.bias, weight=self.layer.weight))


class Single(nn.Module):
    """A layer that does not see the batch as it is: a constant, or one example after the other."""

    def __init__(self, constant):
        super().__init__()
        self.layer = nn.Linear(84, 84)
        if constant:
            self.register_buffer("constant", torch.linspace(-1, 1, 84)[None])

    def forward(self, x):
        x = x.flatten(1)
        if hasattr(self, "constant"):
            return torch.tanh(x * self.layer(self.constant).squeeze(0))
        return torch.tanh(torch.cat([self.layer(row) for row in x.split(1)]))


class Broadcast(nn.Module):
    """A bias that is one number for all that comes out."""

    def __init__(self):
        super().__init__()
        self.layer, self.bias = nn.Linear(84, 5, bias=False), nn.Parameter(torch.ones(1))

    def forward(self, x):
        return torch.tanh(F.linear(x.flatten(1), self.layer.weight, self.bias))


TIES = {
    "transposed": lambda x, h, layer: F.linear(h, layer.weight.T),
    "in a list": lambda x, h, layer: h + x @ torch.stack([layer.weight]).squeeze(0).mT,
    "in a list by name": lambda x, h, layer: h + torch.cat(tensors=(layer.bias, layer.bias))[:5] ** 2,
    "as an input": lambda x, h, layer: h * F.linear(layer.weight, layer.weight).mean(),
}


def bodies():
    convolutions = {
        "plain": nn.Conv2d(2, 3, 3),
        "strided": nn.Conv2d(2, 3, (3, 2), stride=(2, 3), padding=(2, 1)),
        "dilated": nn.Conv2d(2, 3, 3, dilation=2, padding=1),
        "same": nn.Conv2d(2, 3, 3, padding="same"),
        "grouped": nn.Conv2d(2, 4, 3, groups=2, bias=False),
    }
    found = {name: nn.Sequential(layer, nn.Tanh()) for name, layer in convolutions.items()}
    found["linear"] = nn.Sequential(nn.Flatten(), nn.Linear(84, 6), nn.ReLU(), nn.Linear(6, 4, bias=False))
    found["normalised"] = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.5))
    found |= {"twice": Twice(), "elsewhere": Elsewhere(), "broadcast": Broadcast()}
    found["linear by name"] = ByName(nn.Linear(84, 4), F.linear)
    found["convolution by name"] = ByName(nn.Conv2d(2, 3, 3), F.conv2d)
    found |= {"as rows": Positions(True), "in between": Positions(False)}
    found |= {"constant": Single(True), "row by row": Single(False)}
    return found | {name: Tied(again) for name, again in TIES.items()}


# Whose parameters are those of linear layers and convolutions alone.
LAYERS = ("plain", "strided", "linear", "linear by name", "convolution by name")


def setting(name):
    torch.manual_seed(3)
    body = bodies()[name].double()
    n_features = body(torch.zeros(2, *SHAPE, dtype=torch.float64)).flatten(1).shape[1]
    net = from_module(body, nn.Linear(n_features, CLASSES).double())
    x, y = torch.randn(ROWS, *SHAPE, dtype=torch.float64), torch.arange(ROWS) % CLASSES
    mask = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    batch = Batch(x, y, mask, torch.arange(ROWS), {})
    named = [dict(tensors) for tensors in (net.named_parameters(), net.named_buffers())]
    model = Model(*({n: t.detach().clone() for n, t in flat.items()} for flat in named))
    task = make_task(net)
    return model, batch, SimpleNamespace(task=task, facts=SimpleNamespace(samples=mask.sum()))


def one_by_one(model, batch, view):
    total = {n: torch.zeros_like(p) for n, p in model.params.items()}
    for row in range(ROWS):
        if not batch.mask[row]:
            continue
        leaves = {n: p.clone().requires_grad_() for n, p in model.params.items()}
        one = Batch(*(t[row : row + 1] for t in batch[:4]), {})
        out, _ = view.task.forward(leaves, model.buffers, one, False)
        loss = F.cross_entropy(out.logits, one.y)
        grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        total = {n: t if g is None else t + g**2 for (n, t), g in zip(total.items(), grads, strict=True)}
    return total


@pytest.mark.parametrize("name", bodies())
def test_sums_are_those_of_single_examples(name):
    model, batch, view = setting(name)
    measure = squared_gradients()
    found = measure.add(measure.add(measure.init(model, view), model, batch, view), model, batch, view)
    expected = one_by_one(model, batch, view)
    assert set(found["sum"]) == set(expected) == set(model.params)
    for tensor, total in expected.items():
        torch.testing.assert_close(found["sum"][tensor], 2 * total, rtol=1e-9, atol=1e-12)
    assert found["rows"] == 8


@pytest.mark.parametrize("name", LAYERS)
def test_linear_layers_and_convolutions_need_no_gradients_of_single_examples(name, monkeypatch):
    def refused(*given):
        raise AssertionError("gradients of single examples")

    monkeypatch.setattr(room, "_by_examples", refused)
    model, batch, view = setting(name)
    measure = squared_gradients()
    measure.add(measure.init(model, view), model, batch, view)


@pytest.mark.parametrize("name", ["plain", "strided", "linear", "normalised", "elsewhere"])
def test_clients_at_once_have_the_sums_of_each(name):
    model, batch, view = setting(name)
    measure = squared_gradients()
    params = {n: torch.stack([p, p / 2]) for n, p in model.params.items()}

    def sums(params):
        own = Model(params, model.buffers)
        return measure.add(measure.init(own, view), own, batch, view)["sum"]

    both = vmap(sums)(params)
    for client, factor in enumerate((1, 0.5)):
        alone = sums({n: factor * p for n, p in model.params.items()})
        for tensor in alone:
            torch.testing.assert_close(both[tensor][client], alone[tensor], rtol=1e-9, atol=1e-12)


def test_rows_without_mask_count_for_nothing():
    model, batch, view = setting("plain")
    measure = squared_gradients()
    nothing = batch._replace(mask=torch.zeros_like(batch.mask))
    found = measure.add(measure.init(model, view), model, nothing, view)
    assert found["rows"] == 0 and all((total == 0).all() for total in found["sum"].values())
