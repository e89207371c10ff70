"""Makes a network into a task of the core: pure functions over flat trees of parameters and buffers.

Constants of the network, which are frozen parameters and buffers that no layer moves, are part of the task.  They are
in no tree, so that nothing trains, sends, mixes or stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils._python_dispatch import _disable_current_modes

from idiolect.core import OBJECTIVES, Batch, Flat, Initial, Model, Out, Structure, Task, Tree, derive
from idiolect.models import (
    BatchContext,
    InputShapes,
    MaskedBatchNorm,
    Net,
    build,
    crop_and_flip,
    initialise,
    is_registered,
)

__all__ = ["AUGMENTATIONS", "initial_net", "initialiser", "make_task", "structure_of"]

AUGMENTATIONS = ("none", "crop_flip")


def structure_of(net: Net, task: str = "classification") -> Structure:
    """Returns what the core knows of a network: names, units, sizes, what it is trained for, and no constants."""
    constants = net.constants()
    params = tuple(name for name, _ in net.named_parameters() if name not in constants)
    units = {name: i for i in range(net.n_units) for name in net.unit_names(i)}
    n_features, n_classes = net.head_sizes
    layers = (tuple(name for name in layer if name in params) for layer in net.layer_groups())
    return Structure(
        params=params,
        buffers=tuple(name for name, _ in net.named_buffers() if name not in constants),
        unit_of=units,
        n_units=net.n_units,
        layers=tuple(layer for layer in layers if layer),
        linear_head=net.linear_head and not any(name in constants for name in net.unit_names(-1)),
        n_features=n_features,
        n_classes=n_classes,
        convolutional=any(p.dim() > 2 for p in net.parameters()),
        task=task,
        frozen_units=net.frozen_units,
        momenta=net.momenta,
        batch_normalisation=_normalisation(net),
        own_buffers=tuple(sorted(net.observed.own_buffers)),
        has_head=net.has_head,
        n_scalars=sum(p.numel() for name, p in net.named_parameters() if name in params),
    )


class Constants:
    """Tensors that a task holds itself, in the precision and on the device of whatever asks for them.

    They are moved when they are first asked for, outside of any transformation or trace that goes on then, so that
    every trace finds the same tensors.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        self._placed: dict[tuple[torch.device, torch.dtype], Flat] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Constants, (self._tensors,)

    def beside(self, like: Tensor) -> Flat:
        """Returns the tensors by name on the device of ``like``; those with fractions have its precision."""
        place = like.device, like.dtype
        if self._tensors and place not in self._placed:
            with _disable_current_modes(), torch._C._DisableFuncTorch():
                self._placed[place] = {
                    name: _as(tensor.to(like.device), like.dtype) for name, tensor in self._tensors.items()
                }
        return self._placed.get(place, {})


def make_task(
    net: Net,
    augmentation: str = "none",
    fill: Sequence[float] | None = None,
    compute: torch.dtype | None = None,
    task: str = "classification",
    batchable: bool = True,
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
        batchable: whether the network can be run for many clients at once.
    """
    n_units, tokens, own_buffers = net.n_units, net.takes_tokens, net.observed.own_buffers
    tied = len(list(net.named_parameters(remove_duplicate=False))) > len(list(net.parameters()))
    narrow, objective = _narrowed(net, compute), OBJECTIVES[task]
    constants = Constants(net.constants())

    def forward(
        params: Flat, buffers: Flat, batch: Batch, train: bool | tuple[bool, ...]
    ) -> tuple[Out, Flat]:
        modes = (train,) * n_units if isinstance(train, bool) else train
        moved = {name: b.clone() if name in own_buffers else b for name, b in buffers.items()}
        tensors = {**narrow({**params, **constants.beside(batch.mask)}), **moved}
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
        held = narrow({**params, **constants.beside(features)})
        own = {name.removeprefix(last): p for name, p in held.items() if name.startswith(last)}
        inputs = (_as(features, compute), how.mask, False, how.key)
        logits = functional_call(net.units[-1], own, inputs, tie_weights=tied)
        return _as(logits, compute and features.dtype)

    def augment(batch: Batch) -> Batch:
        return batch._replace(x=crop_and_flip(batch.x, batch.key, fill=fill))

    structure = structure_of(net, task)._replace(batchable=batchable)
    return Task(forward, criterion, head, structure, augment if augmentation == "crop_flip" else None)


def _narrowed(net: Net, compute: torch.dtype | None) -> Callable[[Flat], Flat]:
    """Returns a function that casts tensors, except those of normalisation, to the precision of computation."""
    kept = _normalisation(net)
    return lambda params: {n: p if n in kept else _as(p, compute) for n, p in params.items()}


def _normalisation(net: Net) -> frozenset[str]:
    """Returns the names of all tensors of batch normalisation."""
    layers = {path: layer for path, layer in net.named_modules() if isinstance(layer, MaskedBatchNorm)}
    return frozenset(f"{path}.{name}" for path, layer in layers.items() for name in layer.state_dict())


def _as(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor if dtype is None or not tensor.is_floating_point() else tensor.to(dtype)


def initial_net(
    model: str,
    input_shape: tuple[int, ...],
    outputs: int,
    initialisation: str,
    seed: int,
    inputs: InputShapes = (),
) -> Net:
    """Builds the network of a run, with the values of theta_0.

    Args:
        inputs: name and shape of each input, where a row holds several.
    """
    first = derive(seed, "initialisation", "shared")
    return build(model, input_shape, outputs, initialisation, first, inputs)


def initialiser(
    model: str,
    input_shape: tuple[int, ...],
    outputs: int,
    initialisation: str,
    seed: int,
    like: Tensor,
    task: str = "classification",
    inputs: InputShapes = (),
) -> Callable[[int], Initial]:
    """Returns a function of the client: theta_0 of the run, and draws of further initialisations.

    Further initialisations are seeded by purpose and, if asked, by client.  A network of the user's own is built again
    for each: its values are those that its builder draws under the seed, or loads whatever the seed.

    Args:
        like: a tensor with the run's precision and device.
    """
    net = initial_net(model, input_shape, outputs, initialisation, seed, inputs)
    structure = structure_of(net, task)

    def values(net: Net) -> Model:
        tensors = dict((*net.named_parameters(), *net.named_buffers()))
        with torch.no_grad():
            params, buffers = (
                {name: tensors[name].to(like, copy=True) for name in names}
                for names in (structure.params, structure.buffers)
            )
        return Model(params, buffers)

    def drawn(*position: str | int) -> Model:
        derived = derive(seed, "initialisation", *position)
        if is_registered(model):
            return values(build(model, input_shape, outputs, initialisation, derived, inputs))
        initialise(net, initialisation, derived)
        return values(net)

    def spread(purpose: str, shape: tuple[int, ...]) -> Tensor:
        generator = torch.Generator().manual_seed(derive(seed, "initialisation", purpose))
        return torch.empty(shape, dtype=torch.float64).uniform_(-1, 1, generator=generator).to(like)

    first, for_all = values(net), cache(drawn)

    def initial(client: int) -> Initial:
        def draw(purpose: str, own: bool) -> Model:
            return drawn(purpose, client) if own else for_all(purpose)

        return Initial(*first, draw, structure, spread)

    return initial
