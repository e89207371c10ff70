"""A net: units in order from input to output, cut before the last into features and head.

    h = F(x) in R^d,   logits = head(h)

The cut is the one personalised methods need: the head holds one proxy per class (FedRS and MAP restrict its
softmax), h is what prototypes and feature distances are made of, and the order of units is what FedPer
splits.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from idiolect.errors import unknown_name
from idiolect.models.batchnorm import MaskedBatchNorm
from idiolect.models.how import How

__all__ = ["Net"]


class Net(nn.Module):
    """Units run one after the other; the last is the classifier, and what enters it are the features.

    A net has no train or eval mode of its own (`how` says it), so it is pure under
    `torch.func.functional_call`, except that normalisation layers assign new running statistics, which that
    call returns in its dict. Give the call one dict holding parameters and buffers: given a tuple of dicts it
    keeps the new values to itself.

    Args:
        units: at least one, from input to output; each is called with (x, mask, train, key).
    """

    def __init__(self, units: Iterable[nn.Module]) -> None:
        super().__init__()
        self.units = nn.ModuleList(units)

    def features(self, x: Tensor, how: How) -> Tensor:
        """[B, d]: the flattened vector that enters the classifier."""
        for unit, train in zip(list(self.units)[:-1], how.train[:-1], strict=True):
            x = unit(x, how.mask, train, how.key)
        return x.flatten(1)

    def head(self, h: Tensor, how: How) -> Tensor:
        """[B, K]: the logits that the classifier gives the features."""
        logits: Tensor = self.units[-1](h, how.mask, how.train[-1], how.key)
        return logits

    def forward(self, x: Tensor, how: How) -> tuple[Tensor, Tensor]:
        """Features [B, d] and logits [B, K]."""
        h = self.features(x, how)
        return h, self.head(h, how)

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
        """How many tokens the net knows, if it looks tokens up; None for a net that reads images."""
        tables = [module.num_embeddings for module in self.modules() if isinstance(module, nn.Embedding)]
        return max(tables, default=None)

    @property
    def takes_tokens(self) -> bool:
        """Whether x is int64 tokens [B, T] and not images [B, C, H, W]."""
        return self.vocabulary is not None

    def unit_names(self, i: int) -> tuple[str, ...]:
        """Names of unit i's parameters, then of its buffers; a negative i counts from the output."""
        unit, prefix = self.units[i], f"units.{i % self.n_units}."
        parameters = tuple(prefix + name for name, _ in unit.named_parameters())
        return parameters + tuple(prefix + name for name, _ in unit.named_buffers())

    def unit_of(self, name: str) -> int:
        """The number of the unit that holds a parameter or buffer; 0 is nearest to the input."""
        owner = {held: i for i in range(self.n_units) for held in self.unit_names(i)}
        if name not in owner:
            raise unknown_name("parameter", name, owner)
        return owner[name]

    def layer_groups(self) -> tuple[tuple[str, ...], ...]:
        """Parameter names by layer, in order: weight and bias of a convolution, linear or normalisation."""
        groups = (
            tuple(f"{path}.{name}" for name, _ in module.named_parameters(recurse=False))
            for path, module in self.named_modules()
        )
        return tuple(group for group in groups if group)
