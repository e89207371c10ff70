"""A unit: the layers that are shared, kept private, frozen or trained together.

FedPer (Arivazhagan et al., 2019, section 3; https://arxiv.org/abs/1912.00818) counts personalisation layers
from the output in blocks; a unit is one such block.  In this zoo a convolution block (convolution,
normalisation, activation, pooling) is one unit, a hidden linear layer with its activation and dropout is one,
the classifier is one.
"""

from __future__ import annotations

from torch import Tensor, nn

from idiolect.models.dropout import PlannedDropout
from idiolect.models.masked_batchnorm import MaskedBatchNorm

__all__ = ["Unit"]


class Unit(nn.Module):
    """Layers in the order of the keyword arguments, whose names become the names of the parameters.

    Masked normalisation also receives the mask and planned dropout the keys; every other layer is given x
    alone.

    >>> [name for name, _ in Unit(linear=nn.Linear(2, 3), activation=nn.ReLU()).named_parameters()]
    ['linear.weight', 'linear.bias']
    """

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor, mask: Tensor, train: bool, key: Tensor) -> Tensor:
        for layer in self.children():
            if isinstance(layer, MaskedBatchNorm):
                x = layer(x, mask, train)
            elif isinstance(layer, PlannedDropout):
                x = layer(x, key, train)
            else:
                x = layer(x)
        return x
