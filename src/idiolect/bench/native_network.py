"""Networks of the zoo rebuilt from ordinary torch.nn modules, for the plain loops and for peers."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from idiolect.models import BatchContext, MaskedBatchNorm, Net, PlannedDropout, Unit

__all__ = ["fill", "native", "values"]


class _Unmasked(MaskedBatchNorm):
    """Batch normalisation that ignores the mask and calls torch's own kernel."""

    def forward(self, x: Tensor, mask: Tensor, train: bool) -> Tensor:
        statistics = (self.running_mean, self.running_var)
        return F.batch_norm(x, *statistics, self.weight, self.bias, train, self.momentum, self.eps)


class _Whole(nn.Module):
    """A net with branches that is called with images alone."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net
        for parent in list(net.modules()):
            for name, layer in parent.named_children():
                if isinstance(layer, MaskedBatchNorm):
                    setattr(parent, name, _Unmasked(len(layer.weight), layer.momentum, layer.eps))

    def forward(self, x: Tensor) -> Tensor:
        how = BatchContext.plain(len(x), self.net.n_units, train=self.training, device=x.device)
        logits: Tensor = self.net(x, how)[1]
        return logits


def native(net: Net) -> nn.Module:
    """Returns the layers in one ``nn.Sequential`` with torch's own normalisation and dropout.

    A net with branches keeps its own modules around torch's normalisation.  Parameters and buffers keep their order,
    not their values.
    """
    if any(type(unit) is not Unit for unit in net.units):
        return _Whole(net)
    layers = [[_layer(layer) for layer in unit.children()] for unit in net.units]
    before, head = [layer for unit in layers[:-1] for layer in unit], layers[-1]
    return nn.Sequential(*before, nn.Flatten(), *head)


def _layer(layer: nn.Module) -> nn.Module:
    if isinstance(layer, MaskedBatchNorm):
        return nn.BatchNorm2d(len(layer.weight), layer.eps, layer.momentum)
    return nn.Dropout(layer.rate) if isinstance(layer, PlannedDropout) else layer


def values(module: nn.Module) -> list[Tensor]:
    """Returns the parameters, then the running statistics, in the order of the zoo's net."""
    statistics = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
    return [*module.parameters(), *statistics]


def fill(module: nn.Module, tensors: Iterable[Tensor]) -> None:
    """Copies tensors into ``values(module)``."""
    with torch.no_grad():
        for value, tensor in zip(values(module), tensors, strict=True):
            value.copy_(tensor)
