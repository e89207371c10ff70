"""Networks in batched layers compute what they are, whatever they are made of."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from idiolect.engines.cohort import convolution
from idiolect.engines.cohort.batched_layer_dispatch import BatchedLayers


class Twice(nn.Module):
    """A ReLU whose output is pooled and used as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.convolution(x))
        return F.max_pool2d(y, 2).flatten(1).sum(1) + y.flatten(1).mean(1)


class Aside(nn.Module):
    """Pools something else than what was rectified last."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.convolution(x))
        return F.max_pool2d(x, 2).flatten(1).sum(1) * y.flatten(1).mean(1)


class Viewed(nn.Module):
    """Views what was pooled, as if it were contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.max_pool2d(F.relu(self.convolution(x)), 2)
        return self.head(y.view(y.size(0), -1))


class Negated(nn.Module):
    """Changes what a convolution gave before it is pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.convolution(x)
        y.neg_()
        return F.max_pool2d(y, 2).flatten(1)


class Changed(nn.Module):
    """Changes in place, through a view, what a convolution gave."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.convolution(x)
        y.view(y.shape[0], -1).mul_(-1)
        return F.max_pool2d(y, 2).flatten(1)


NETS = {
    "usual": nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 9, 2)),
    "no relu": nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten()),
    "no bias": nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten()),
    "relu in place": nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()),
    "strided": nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, dilation=1), nn.ReLU(), nn.Flatten()),
    "groups": nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
    "same padding": nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.ReLU(), nn.Flatten()),
    "overlapping windows": nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.MaxPool2d(3, stride=2, padding=1), nn.Flatten()
    ),
    "rounded up": nn.Sequential(nn.Conv2d(3, 4, 4), nn.MaxPool2d(2, ceil_mode=True), nn.Flatten()),
    "mean of a map": nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "means of parts": nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
    "twice": Twice(),
    "aside": Aside(),
    "viewed": Viewed(),
    "negated": Negated(),
}


def step(net: nn.Module):  # type: ignore[no-untyped-def]
    """The gradients of every client's own parameters on its own images."""

    def loss(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return (functional_call(net, params, (x,)) / 10).sin().sum()

    return vmap(grad(loss))


def arguments(net: nn.Module) -> tuple[dict[str, Tensor], Tensor]:
    torch.manual_seed(0)
    params = {n: torch.randn(3, *p.shape, dtype=torch.float64) / 3 for n, p in net.named_parameters()}
    return params, torch.randn(3, 2, 3, 8, 8, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", NETS)
def test_gradients_are_the_networks_own(name):
    net = NETS[name].double()
    expected = step(net)(*arguments(net))
    with BatchedLayers():
        found = step(net)(*arguments(net))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", NETS)
def test_traced_with_kernels_gradients_are_the_networks_own(name, monkeypatch):
    """As on a GPU, where convolution and pooling are one operation while a step is traced."""
    net = NETS[name].double()
    expected = step(net)(*arguments(net))

    def serves(x, weight, stride, padding, dilation):  # type: ignore[no-untyped-def]
        return stride == dilation == (1, 1) and weight.shape[2] > 1

    monkeypatch.setattr(convolution, "kernel_serves", serves)
    with BatchedLayers():
        graph = make_fx(step(net), tracing_mode="fake")(*arguments(net))
    graph.graph.eliminate_dead_code()
    graph.recompile()
    torch.testing.assert_close(graph(*arguments(net)), expected, rtol=1e-10, atol=1e-10)
    if name in ("usual", "no relu"):
        called = {str(node.target) for node in graph.graph.nodes}
        assert (
            "idiolect.pooled_convolution.default" in called and "idiolect.convolution.default" not in called
        )


def test_changing_a_view_in_place_is_refused():
    net = Changed().double()
    with BatchedLayers(), pytest.raises(RuntimeError, match="changes a view in place"):
        step(net)(*arguments(net))


def test_outside_layers_are_torchs_own():
    net = NETS["usual"].double()
    params, x = arguments(net)
    graph = make_fx(step(net))(params, x)
    assert any("aten.convolution" in str(node.target) for node in graph.graph.nodes)
    with BatchedLayers():
        graph = make_fx(step(net))(params, x)
    assert not any("aten.convolution" in str(node.target) for node in graph.graph.nodes)
