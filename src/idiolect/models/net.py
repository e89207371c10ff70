"""A net: units in order from input to output, cut before the last into features and head.

    h = F(x) in R^d,   logits = head(h)

The cut is the one personalised methods need: the head holds one proxy per class (FedRS and MAP restrict its
softmax), h is what prototypes are made of, and the order of units is what FedPer splits.  FedPHP compares what
enters the first linear layer instead, before any dropout: that is h, unless hidden linear layers or dropout stand
between.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor, nn

from idiolect.errors import unknown_name
from idiolect.models.batch_context import BatchContext
from idiolect.models.dropout import PlannedDropout
from idiolect.models.masked_batchnorm import MaskedBatchNorm

__all__ = ["Net", "Outputs"]

PASSED_OVER = (nn.Flatten, nn.Identity, PlannedDropout)  # between the encoder and the first linear layer


class Outputs(NamedTuple):
    """What a net computes for B rows."""

    features: Tensor  # [B, d]
    logits: Tensor  # [B, K]
    encoded: Tensor | None  # [B, e] what enters the first linear layer; None where that is the features


class Net(nn.Module):
    """Units run one after the other; the last is the classifier, and what enters it are the features.

    A net has no train or eval mode of its own (`context` states it), so it is pure under
    `torch.func.functional_call`, except that normalisation layers assign new running statistics, which that
    call returns in its dict. Give the call one dict holding parameters and buffers: given a tuple of dicts it
    does not return the new values.

    Args:
        units: at least one, from input to output; each is called with (x, mask, train, key).
    """

    def __init__(self, units: Iterable[nn.Module]) -> None:
        super().__init__()
        self.units = nn.ModuleList(units)
        self._entered: list[Tensor] | None = None  # a list while a pass goes on
        entrance = self._entrance()
        if entrance is not None:
            entrance.register_forward_pre_hook(self._enter)

    def features(self, x: Tensor, context: BatchContext) -> Tensor:
        """Returns [B, d], the flattened vector that enters the classifier."""
        for unit, train in zip(list(self.units)[:-1], context.train[:-1], strict=True):
            x = unit(x, context.mask, train, context.key)
        return x.flatten(1)

    def head(self, h: Tensor, context: BatchContext) -> Tensor:
        """Returns [B, K], the logits of the classifier for the features."""
        logits: Tensor = self.units[-1](h, context.mask, context.train[-1], context.key)
        return logits

    def forward(self, x: Tensor, context: BatchContext) -> Outputs:
        entered: list[Tensor] = []
        self._entered = entered
        try:
            h = self.features(x, context)
            return Outputs(h, self.head(h, context), entered[0].flatten(1) if entered else None)
        finally:
            self._entered = None

    def _enter(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if self._entered is not None:
            self._entered.append(inputs[0])

    def _entrance(self) -> nn.Module | None:
        """Returns the layer whose input is what the linear layers read; layers run in the order in which they are held.

        None where that is the features, or where the linear layers read x itself.
        """
        layers = [layer for layer in self.modules() if not any(layer.children())]
        first = next((i for i, layer in enumerate(layers) if isinstance(layer, nn.Linear)), len(layers))
        encoders = [i for i in range(first) if any(True for _ in layers[i].parameters())]
        while first > 0 and isinstance(layers[first - 1], PASSED_OVER):
            first -= 1
        head = next((layer for layer in self.units[-1].modules() if not any(layer.children())), None)
        return layers[first] if encoders and first < len(layers) and layers[first] is not head else None

    @property
    def n_units(self) -> int:
        return len(self.units)

    @property
    def linear_head(self) -> bool:
        """Whether the classifier is exactly one linear layer, as restricted softmax requires."""
        layers = list(self.units[-1].children())
        return len(layers) == 1 and isinstance(layers[0], nn.Linear)

    @property
    def has_batchnorm(self) -> bool:
        return any(isinstance(module, MaskedBatchNorm) for module in self.modules())

    @property
    def vocabulary(self) -> int | None:
        """The number of tokens that the net can embed; None for a net that reads images."""
        tables = [module.num_embeddings for module in self.modules() if isinstance(module, nn.Embedding)]
        return max(tables, default=None)

    @property
    def takes_tokens(self) -> bool:
        """Whether x is int64 tokens [B, T] and not images [B, C, H, W]."""
        return self.vocabulary is not None

    def unit_names(self, i: int) -> tuple[str, ...]:
        """Returns the names of unit i's parameters, then of its buffers; a negative i counts from the output."""
        unit, prefix = self.units[i], f"units.{i % self.n_units}."
        parameters = tuple(prefix + name for name, _ in unit.named_parameters())
        return parameters + tuple(prefix + name for name, _ in unit.named_buffers())

    def unit_of(self, name: str) -> int:
        """Returns the number of the unit that holds a parameter or buffer; 0 is nearest to the input."""
        owner = {held: i for i in range(self.n_units) for held in self.unit_names(i)}
        if name not in owner:
            raise unknown_name("parameter", name, owner)
        return owner[name]

    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        """Returns parameter names by layer, in order: weight and bias of each convolution, linear, normalisation."""
        groups = (
            tuple(f"{path}.{name}" for name, _ in module.named_parameters(recurse=False))
            for path, module in self.named_modules()
        )
        return tuple(group for group in groups if group)
