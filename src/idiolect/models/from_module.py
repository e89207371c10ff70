"""Builds a net from a user's own torch modules: `from_module(body, head)`.

Modules are used as they are, except for layers that read a batch as a whole or draw noise: batch normalisation
becomes `MaskedBatchNorm` and dropout `PlannedDropout`, under the same names and with the same values.  Other
properties of a module show only when it runs, so it is checked before a run; see `check_model`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import count

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import UninitializedParameter

from idiolect.errors import UserError
from idiolect.models.dropout import PlannedDropout
from idiolect.models.masked_batchnorm import MaskedBatchNorm
from idiolect.models.net import Net
from idiolect.models.sharing_unit import Unit

__all__ = ["OwnUnit", "from_module"]

MOMENTUM = 0.1  # of running statistics; recomputing them for evaluation relies on this value


def from_module(body: nn.Module | Sequence[nn.Module], head: nn.Module) -> Net:
    """Builds a net from copies of modules.

    Args:
        body: x -> features [B, d], or a map that is flattened to them; a list of modules, run one after the
            other, gives as many units, between which FedPer can split.
        head: features -> logits [B, K]; one `nn.Linear` where a method restricts the softmax.

    Modules must hold their layers in the order in which they run, because FedPHP compares what enters the first
    linear layer in that order.

    >>> body = nn.Sequential(nn.Conv2d(1, 4, 5), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(4))
    >>> net = from_module(body, nn.Linear(4 * 6 * 6, 10))
    >>> net.has_batchnorm, net.linear_head, net.n_units
    (True, True, 2)
    """
    bodies = list(body) if isinstance(body, Sequence | nn.ModuleList) else [body]
    for module in (*bodies, head):
        if not isinstance(module, nn.Module):
            raise UserError(f"from_module takes modules of torch, not {type(module).__name__}")
    *first, last = _converted(deepcopy([*bodies, head]))
    classifier = Unit(linear=last) if type(last) is nn.Linear else OwnUnit(last)
    net = Net([*(OwnUnit(module) for module in first), classifier])
    _refuse_unusable(net)
    return net


def _converted(modules: list[nn.Module]) -> list[nn.Module]:
    """Replaces normalisation and dropout layers in place, at any depth, and returns the modules."""
    numbers = count()

    def convert(layer: nn.Module) -> nn.Module:
        for name, child in layer._modules.items():
            if child is not None:
                layer._modules[name] = convert(child)
        return _replaced(layer, numbers)

    return [convert(module) for module in modules]


def _refuse_unusable(net: Net) -> None:
    """Refuses a net whose tensors cannot be averaged or split, by name."""
    parameters = dict(net.named_parameters(remove_duplicate=False))
    lazy = [name for name, p in parameters.items() if isinstance(p, UninitializedParameter)]
    if lazy:
        raise UserError(f"{lazy[0]} of the model has no shape yet; replace lazy layers by plain ones")
    if len(parameters) > len(dict(net.named_parameters())):
        raise UserError("two layers of the model share a parameter; give each its own")
    for name, buffer in net.named_buffers():
        if not buffer.is_floating_point():
            raise UserError(
                f"the buffer {name} of the model holds no floating-point numbers and cannot be averaged; "
                "make it in forward instead"
            )
    if not any(p.dim() > 1 for p in net.units[-1].parameters()):
        raise UserError("the head of the model has no weight matrix; end with a linear layer")


def _replaced(layer: nn.Module, numbers: Iterator[int]) -> nn.Module:
    kind = type(layer).__name__
    if type(layer) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
        assert isinstance(layer, _BatchNorm)
        return _masked(layer)
    if type(layer) is nn.Dropout:
        return PlannedDropout(layer.p, next(numbers))
    if isinstance(layer, _BatchNorm) or (isinstance(layer, _InstanceNorm) and layer.track_running_stats):
        raise UserError(f"the model's {kind} cannot be converted; use BatchNorm1d, 2d or 3d, or GroupNorm")
    if isinstance(layer, _DropoutNd):
        raise UserError(f"the model's {kind} cannot be converted; use nn.Dropout")
    return layer


def _masked(layer: _BatchNorm) -> MaskedBatchNorm:
    if not (layer.affine and layer.track_running_stats and layer.momentum == MOMENTUM):
        raise UserError(
            f"the model's {layer} cannot be converted; it needs affine=True, track_running_stats=True and "
            f"momentum={MOMENTUM}"
        )
    found = MaskedBatchNorm(layer.num_features, MOMENTUM, layer.eps)
    found.weight, found.bias = layer.weight, layer.bias
    assert layer.running_mean is not None and layer.running_var is not None
    found.running_mean, found.running_var = layer.running_mean, layer.running_var
    return found


class OwnUnit(nn.Module):
    """A user's module as a unit, which is called with x alone.

    Hooks pass the mask, mode and keys to its converted layers. Every call of a dropout layer has its own noise,
    also when one layer is called twice.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._now: tuple[Tensor, bool, Iterator[Tensor]] | None = None
        for layer in module.modules():
            if isinstance(layer, MaskedBatchNorm | PlannedDropout):
                layer.register_forward_pre_hook(self._inform)

    def forward(self, x: Tensor, mask: Tensor, train: bool, key: Tensor) -> Tensor:
        self.module.train(train)
        self._now = mask, train, (key + call for call in count())
        try:
            y: Tensor = self.module(x)
            return y
        finally:
            self._now = None

    def _inform(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[object, ...]:
        assert self._now is not None
        (x,), (mask, train, keys) = inputs, self._now
        if x.shape[0] != mask.shape[0]:
            raise UserError(
                f"a {type(layer).__name__} of the model sees {x.shape[0]} rows of a batch of {mask.shape[0]}; "
                "keep one row for each example there"
            )
        return (x, mask, train) if isinstance(layer, MaskedBatchNorm) else (x, next(keys), train)
