"""A network as a task of the core: pure functions over flat trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from idiolect.core import Batch, Flat, Initial, Model, Out, Structure, Task, Tree, derive
from idiolect.core.masked_mean import mean_over_rows
from idiolect.models import How, MaskedBatchNorm, Net, build, crop_and_flip, initialise

__all__ = ["AUGMENTATIONS", "initialiser", "make_task", "structure_of"]

AUGMENTATIONS = ("none", "crop_flip")


def structure_of(net: Net) -> Structure:
    params = tuple(name for name, _ in net.named_parameters())
    buffers = tuple(name for name, _ in net.named_buffers())
    units = {name: i for i in range(net.n_units) for name in net.unit_names(i)}
    head = [p for name, p in net.named_parameters() if units[name] == net.n_units - 1 and p.dim() > 1]
    return Structure(
        params=params,
        buffers=buffers,
        unit_of=units,
        n_units=net.n_units,
        layers=net.layer_groups(),
        linear_head=net.linear_head,
        n_features=head[0].shape[1],
        n_classes=head[-1].shape[0],
        convolutional=any(p.dim() > 2 for p in net.parameters()),
    )


def make_task(
    net: Net,
    augmentation: str = "none",
    fill: Sequence[float] | None = None,
    compute: torch.dtype | None = None,
) -> Task:
    """Mean softmax cross-entropy over the real rows of a batch.

    A net that takes tokens is given x as int64 [B, T], whatever its type and axes, so that a batch of token
    images [B, 1, 1, T] of the run's precision serves it as well.

    Args:
        augmentation: of training batches, one of ``AUGMENTATIONS``.
        fill: by channel, what augmentation puts beyond the edges of an image.
        compute: precision that the network computes in; what enters and leaves it has the run's.  Normalisation
            keeps the run's, and None computes everything in it.
    """
    n_units, tokens = net.n_units, net.takes_tokens
    tied = len(list(net.named_parameters(remove_duplicate=False))) > len(list(net.parameters()))
    narrow = _narrowed(net, compute)

    def forward(
        params: Flat, buffers: Flat, batch: Batch, train: bool | tuple[bool, ...]
    ) -> tuple[Out, Flat]:
        modes = (train,) * n_units if isinstance(train, bool) else train
        tensors = {**narrow(params), **buffers}
        how = How(batch.mask, modes, batch.key)
        x = batch.x.flatten(1).long() if tokens else _as(batch.x, compute)
        found = functional_call(net, tensors, (x, how), tie_weights=tied)
        features, logits, encoded = (t if t is None else _as(t, compute and batch.mask.dtype) for t in found)
        return Out(features, logits, encoded=encoded), {name: tensors[name] for name in buffers}

    def criterion(params: Tree, batch: Batch, out: Out) -> Tensor:
        return -mean_over_rows(_at_labels(F.log_softmax(out.logits, -1), batch.y), batch.mask)

    def head(params: Flat, features: Tensor) -> Tensor:
        ones = torch.ones_like(features[:, 0])
        how = How(ones, (False,) * n_units, ones.long())
        last = f"units.{n_units - 1}."
        own = {name.removeprefix(last): p for name, p in narrow(params).items() if name.startswith(last)}
        inputs = (_as(features, compute), how.mask, False, how.key)
        logits = functional_call(net.units[-1], own, inputs, tie_weights=tied)
        return _as(logits, compute and features.dtype)

    def augment(batch: Batch) -> Batch:
        return batch._replace(x=crop_and_flip(batch.x, batch.key, fill=fill))

    return Task(forward, criterion, head, structure_of(net), augment if augmentation == "crop_flip" else None)


def _at_labels(scores: Tensor, labels: Tensor) -> Tensor:
    """[B, K], [B] -> [B]; on a GPU element by element, so that the gradient is part of the kernels beside it."""
    if not scores.is_cuda:
        return scores.gather(-1, labels[:, None]).squeeze(-1)
    is_label = labels[:, None] == torch.arange(scores.shape[-1], device=labels.device)
    return torch.where(is_label, scores, 0).sum(-1)


def _narrowed(net: Net, compute: torch.dtype | None) -> Callable[[Flat], Flat]:
    """Parameters in the precision that the network computes in, but those of normalisation."""
    layers = {path: layer for path, layer in net.named_modules() if isinstance(layer, MaskedBatchNorm)}
    kept = {f"{path}.{name}" for path, layer in layers.items() for name, _ in layer.named_parameters()}
    return lambda params: {n: p if n in kept else _as(p, compute) for n, p in params.items()}


def _as(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor if dtype is None or not tensor.is_floating_point() else tensor.to(dtype)


def initialiser(
    model: str,
    image_shape: tuple[int, int, int],
    n_classes: int,
    initialisation: str,
    seed: int,
    like: Tensor,
) -> Callable[[int], Initial]:
    """client -> theta_0 of the run, and further initialisations seeded by purpose and, if asked, by client.

    Args:
        like: a tensor with the run's precision and device.
    """
    net = build(model, image_shape, n_classes, initialisation)
    params, buffers = dict(net.named_parameters()), dict(net.named_buffers())

    def drawn(*position: str | int) -> Model:
        initialise(net, initialisation, derive(seed, "initialisation", *position))
        with torch.no_grad():
            return Model(*({k: v.to(like, copy=True) for k, v in tree.items()} for tree in (params, buffers)))

    first, structure, for_all = drawn("shared"), structure_of(net), cache(drawn)

    def initial(client: int) -> Initial:
        def draw(purpose: str, own: bool) -> Model:
            return drawn(purpose, client) if own else for_all(purpose)

        return Initial(*first, draw, structure)

    return initial
