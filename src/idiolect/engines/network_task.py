"""Makes a network into a task of the core: pure functions over flat trees of parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor
from torch.func import functional_call

from idiolect.core import OBJECTIVES, Batch, Flat, Initial, Model, Out, Structure, Task, Tree, derive
from idiolect.models import BatchContext, MaskedBatchNorm, Net, build, crop_and_flip, initialise

__all__ = ["AUGMENTATIONS", "initialiser", "make_task", "structure_of"]

AUGMENTATIONS = ("none", "crop_flip")


def structure_of(net: Net, task: str = "classification") -> Structure:
    """Returns what the core knows of a network: names, units, sizes, and what it is trained for."""
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
        task=task,
    )


def make_task(
    net: Net,
    augmentation: str = "none",
    fill: Sequence[float] | None = None,
    compute: torch.dtype | None = None,
    task: str = "classification",
) -> Task:
    """Returns the task of a network: its forward pass, and the mean loss over real rows of a batch.

    A network that takes tokens gets x as int64 [B, T], whatever its type and axes, so that batches of token images
    [B, 1, 1, T] in the run's precision can be used as well.

    Args:
        augmentation: of training batches, one of ``AUGMENTATIONS``.
        fill: by channel, the values that augmentation puts beyond the edges of an image.
        compute: the precision that the network computes in; its inputs, its outputs and normalisation keep the run's
            precision.  None computes everything in the run's precision.
        task: which loss, one of ``OBJECTIVES``.
    """
    n_units, tokens = net.n_units, net.takes_tokens
    tied = len(list(net.named_parameters(remove_duplicate=False))) > len(list(net.parameters()))
    narrow, objective = _narrowed(net, compute), OBJECTIVES[task]

    def forward(
        params: Flat, buffers: Flat, batch: Batch, train: bool | tuple[bool, ...]
    ) -> tuple[Out, Flat]:
        modes = (train,) * n_units if isinstance(train, bool) else train
        tensors = {**narrow(params), **buffers}
        how = BatchContext(batch.mask, modes, batch.key)
        x = batch.x.flatten(1).long() if tokens else _as(batch.x, compute)
        features, logits, encoded = functional_call(net, tensors, (x, how), tie_weights=tied)
        dtype = compute and batch.mask.dtype
        out = Out(
            _as(features, dtype),
            _as(logits, dtype),
            encoded=None if encoded is None else _as(encoded, dtype),
        )
        return out, {name: tensors[name] for name in buffers}

    def criterion(params: Tree, batch: Batch, out: Out) -> Tensor:
        return objective.loss(out.logits, batch.y, batch.mask)

    def head(params: Flat, features: Tensor) -> Tensor:
        ones = torch.ones_like(features[:, 0])
        how = BatchContext(ones, (False,) * n_units, ones.long())
        last = f"units.{n_units - 1}."
        own = {name.removeprefix(last): p for name, p in narrow(params).items() if name.startswith(last)}
        inputs = (_as(features, compute), how.mask, False, how.key)
        logits = functional_call(net.units[-1], own, inputs, tie_weights=tied)
        return _as(logits, compute and features.dtype)

    def augment(batch: Batch) -> Batch:
        return batch._replace(x=crop_and_flip(batch.x, batch.key, fill=fill))

    structure = structure_of(net, task)
    return Task(forward, criterion, head, structure, augment if augmentation == "crop_flip" else None)


def _narrowed(net: Net, compute: torch.dtype | None) -> Callable[[Flat], Flat]:
    """Returns a function that casts parameters, except those of normalisation, to the precision of computation."""
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
    task: str = "classification",
) -> Callable[[int], Initial]:
    """Returns a function of the client: theta_0 of the run, and draws of further initialisations.

    Further initialisations are seeded by purpose and, if asked, by client.

    Args:
        like: a tensor with the run's precision and device.
    """
    net = build(model, image_shape, n_classes, initialisation)
    params, buffers = dict(net.named_parameters()), dict(net.named_buffers())

    def drawn(*position: str | int) -> Model:
        initialise(net, initialisation, derive(seed, "initialisation", *position))
        with torch.no_grad():
            return Model(*({k: v.to(like, copy=True) for k, v in tree.items()} for tree in (params, buffers)))

    first, structure, for_all = drawn("shared"), structure_of(net, task), cache(drawn)

    def initial(client: int) -> Initial:
        def draw(purpose: str, own: bool) -> Model:
            return drawn(purpose, client) if own else for_all(purpose)

        return Initial(*first, draw, structure)

    return initial
