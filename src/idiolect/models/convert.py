"""Layers of torch that look at a batch as a whole or draw noise, replaced by those that know how it is run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import UninitializedParameter

from idiolect.errors import UserError
from idiolect.models.batchnorm import MaskedBatchNorm
from idiolect.models.dropout import PlannedDropout
from idiolect.models.net import Net

__all__ = ["converted", "refuse_unusable"]

MOMENTUM = 0.1  # of running statistics; recomputing them for evaluation counts on it


def converted(modules: list[nn.Module]) -> list[nn.Module]:
    """The modules with their normalisation and dropout layers replaced, in place, at any depth."""
    numbers = count()

    def convert(layer: nn.Module) -> nn.Module:
        for name, child in layer._modules.items():
            if child is not None:
                layer._modules[name] = convert(child)
        return _replaced(layer, numbers)

    return [convert(module) for module in modules]


def refuse_unusable(net: Net) -> None:
    """What cannot be averaged, split or counted by name."""
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
