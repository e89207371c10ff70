"""A net: units in order from input to output, cut before the last into features and head.

    h = F(x) in R^d,   logits = head(h)

The cut is the one personalised methods need: the head holds one proxy per class (FedRS and MAP restrict its
softmax), h is what prototypes are made of, and the order of units is what FedPer splits.  FedPHP compares what
enters the first linear layer instead, before any dropout: that is h, unless hidden linear layers or dropout stand
between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from idiolect.errors import unknown_name
from idiolect.models.batch_context import BatchContext
from idiolect.models.dropout import PlannedDropout
from idiolect.models.masked_batchnorm import MaskedBatchNorm

__all__ = ["Net", "Observed", "Outputs"]

MOMENTUM = 0.1  # of running statistics, as torch has it
PASSED_OVER = (nn.Flatten, nn.Identity, PlannedDropout)  # between the encoder and the first linear layer


class Outputs(NamedTuple):
    """What a net computes for B rows."""

    features: Tensor  # [B, d]
    logits: Tensor  # [B, K]
    encoded: Tensor | None  # [B, e] what enters the first linear layer; None where that is the features


class Observed(NamedTuple):
    """What running a user's net has shown; the defaults hold for nets of the zoo.

    Attributes:
        has_head: whether the last unit is a classifier on features.
        n_features, n_outputs: d and K; None reads them off the weights of the head.
        takes_tokens: whether x is tokens; None for a net with an embedding.
        own_buffers: names of buffers that the forward pass moves, other than running statistics.
        still_statistics: names of running statistics that training leaves alone, as the module keeps them in eval mode.
        draws_noise: whether the forward pass draws random numbers, in eval and in training mode; they are then seeded
            by the keys of the batch.
        row_shape: the shape that rows are given, where it differs from that of the data.
    """

    has_head: bool = True
    n_features: int | None = None
    n_outputs: int | None = None
    takes_tokens: bool | None = None
    own_buffers: frozenset[str] = frozenset()
    still_statistics: frozenset[str] = frozenset()
    draws_noise: tuple[bool, bool] = (False, False)
    row_shape: tuple[int, ...] | None = None


class Net(nn.Module):
    """Units run one after the other; the last is the classifier, and what enters it are the features.

    A net has no train or eval mode of its own (`context` states it), so it is pure under
    `torch.func.functional_call`, except that normalisation layers assign new running statistics, which that
    call returns in its dict. Give the call one dict holding parameters and buffers: given a tuple of dicts it
    does not return the new values.

    Args:
        units: at least one, from input to output; each is called with (x, mask, train, key).
    """

    _observed = Observed()  # with an underscore, because it is no setting that a digest of the net covers

    def __init__(self, units: Iterable[nn.Module]) -> None:
        super().__init__()
        self.units = nn.ModuleList(units)
        self._entered: list[Tensor] | None = None  # a list while a pass goes on
        entrance = self._entrance()
        if entrance is not None:
            entrance.register_forward_pre_hook(self._enter)

    def features(self, x: Tensor, context: BatchContext) -> Tensor:
        """Returns [B, d], the flattened vector that enters the classifier."""
        if self._observed.row_shape is not None:
            x = x.reshape(x.shape[0], *self._observed.row_shape)
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
        noisy = self._observed.draws_noise[any(context.train)]
        try:
            with seeded_by(context.key) if noisy else nullcontext():
                if self.has_head:
                    h = self.features(x, context)
                    logits = self.head(h, context)
                else:
                    logits = self.head(x, context)
                    h = logits
            return Outputs(h, logits, entered[0].flatten(1) if entered else None)
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
    def observed(self) -> Observed:
        return self._observed

    def observe(self, **found: Any) -> None:
        """Notes what running the net has shown."""
        self._observed = self._observed._replace(**found)

    @property
    def has_head(self) -> bool:
        """Whether the last unit is a classifier on features."""
        return self._observed.has_head

    @property
    def head_sizes(self) -> tuple[int, int]:
        """Features d and outputs K; 0 where that is not known."""
        weights = [p for p in self.units[-1].parameters() if p.dim() > 1] if self.has_head else []
        d, k = self._observed.n_features, self._observed.n_outputs
        read = (weights[0].shape[1], weights[-1].shape[0]) if weights else (0, 0)
        return (read[0] if d is None else d), (read[1] if k is None else k)

    @property
    def linear_head(self) -> bool:
        """Whether the classifier is exactly one linear layer, as restricted softmax requires."""
        layers = list(self.units[-1].children())
        return self.has_head and len(layers) == 1 and type(layers[0]) is nn.Linear

    @property
    def frozen_units(self) -> frozenset[int]:
        """Units that have parameters and train none of them; they run in eval mode."""
        held = [list(unit.parameters()) for unit in self.units]
        return frozenset(i for i, ps in enumerate(held) if ps and not any(p.requires_grad for p in ps))

    @property
    def momenta(self) -> tuple[tuple[str, float], ...]:
        """The momentum of running statistics by name, where it is not the usual 0.1."""
        return tuple(
            (f"{path}.{name}", layer.momentum)
            for path, layer in self.named_modules()
            if isinstance(layer, MaskedBatchNorm) and layer.momentum != MOMENTUM
            for name in ("running_mean", "running_var")
        )

    def constants(self) -> dict[str, Tensor]:
        """Returns what never changes: parameters with ``requires_grad=False``, and buffers that nothing moves.

        Running statistics of normalisation move, except in a frozen unit or where training was seen to leave them.
        """
        frozen = {name: p for name, p in self.named_parameters() if not p.requires_grad}
        moving = set(self._observed.own_buffers)
        for i in set(range(self.n_units)) - self.frozen_units:
            for path, layer in self.units[i].named_modules(prefix=f"units.{i}"):
                if isinstance(layer, MaskedBatchNorm):
                    moving |= {f"{path}.running_mean", f"{path}.running_var"}
        moving -= self._observed.still_statistics
        return frozen | {name: b for name, b in self.named_buffers() if name not in moving}

    @property
    def has_batchnorm(self) -> bool:
        return any(isinstance(module, MaskedBatchNorm) for module in self.modules())

    @property
    def vocabulary(self) -> int | None:
        """The number of tokens that the net can embed; None for a net that reads numbers."""
        if self._observed.takes_tokens is False:
            return None
        tables = (m.num_embeddings for m in self.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag))
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


@contextmanager
def seeded_by(key: Tensor) -> Iterator[None]:
    """Seeds torch's random numbers by the keys of a batch; its global random state is as before afterwards."""
    seed = int(key.sum())
    with torch.random.fork_rng(devices=[key.device] if key.is_cuda else []):
        torch.default_generator.manual_seed(seed)
        if key.is_cuda:
            with torch.cuda.device(key.device):
                torch.cuda.manual_seed(seed)
        yield
