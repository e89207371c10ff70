"""A net from modules of one's own: `from_module(body, head)`.

Modules are taken as they are, but for the layers that look at a batch as a whole or draw noise: batch
normalisation becomes `MaskedBatchNorm` and dropout `PlannedDropout`, under the same names and with the same
values.  A module that nothing can be said of without running it is tried before a run; see `trial`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import count

from torch import Tensor, nn

from idiolect.errors import UserError
from idiolect.models.batchnorm import MaskedBatchNorm
from idiolect.models.convert import converted, refuse_unusable
from idiolect.models.dropout import PlannedDropout
from idiolect.models.net import Net
from idiolect.models.unit import Unit

__all__ = ["OwnUnit", "from_module"]


def from_module(body: nn.Module | Sequence[nn.Module], head: nn.Module) -> Net:
    """A net made of copies of one's own modules.

    Args:
        body: x -> features [B, d], or a map that is flattened to them; a list of modules, run one after the
            other, gives as many units, between which FedPer can split.
        head: features -> logits [B, K]; one `nn.Linear` where a method restricts the softmax.

    Modules must hold their layers in the order in which they run, since FedPHP compares what enters the first
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
    *first, last = converted(deepcopy([*bodies, head]))
    classifier = Unit(linear=last) if type(last) is nn.Linear else OwnUnit(last)
    net = Net([*(OwnUnit(module) for module in first), classifier])
    refuse_unusable(net)
    return net


class OwnUnit(nn.Module):
    """A module of a user's as a unit: it is called with x alone.

    Its converted layers are handed on their way in what they need besides. Every call of a dropout layer has
    noise of its own, a layer that is called twice included.
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
