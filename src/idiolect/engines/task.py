"""A network as a task of the core: pure functions over flat trees."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from idiolect.core import Batch, Flat, Initial, Model, Out, Structure, Task, Tree, derive
from idiolect.core.rows import mean_over_rows
from idiolect.models import How, Net, build

__all__ = ["initialiser", "make_task", "structure_of"]


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
    )


def make_task(net: Net) -> Task:
    """Mean softmax cross-entropy over the real rows of a batch."""
    n_units = net.n_units

    def forward(
        params: Flat, buffers: Flat, batch: Batch, train: bool | tuple[bool, ...]
    ) -> tuple[Out, Flat]:
        modes = (train,) * n_units if isinstance(train, bool) else train
        tensors = {**params, **buffers}
        how = How(batch.mask, modes, batch.key)
        features, logits = functional_call(net, tensors, (batch.x, how), strict=True)
        return Out(features, logits), {name: tensors[name] for name in buffers}

    def criterion(params: Tree, batch: Batch, out: Out) -> Tensor:
        each = F.cross_entropy(out.logits, batch.y, reduction="none")
        return mean_over_rows(each, batch.mask)

    def head(params: Flat, features: Tensor) -> Tensor:
        ones = torch.ones_like(features[:, 0])
        how = How(ones, (False,) * n_units, ones.long())
        last = f"units.{n_units - 1}."
        own = {name.removeprefix(last): p for name, p in params.items() if name.startswith(last)}
        return functional_call(net.units[-1], own, (features, how.mask, False, how.key), strict=True)

    return Task(forward, criterion, head, structure_of(net))


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

    def drawn(*position: str | int) -> Model:
        net = build(model, image_shape, n_classes, initialisation, derive(seed, "initialisation", *position))
        params = {k: v.detach().to(like) for k, v in net.named_parameters()}
        return Model(params, {k: v.to(like) for k, v in net.named_buffers()})

    first = drawn("shared")
    structure = structure_of(build(model, image_shape, n_classes, initialisation))

    def initial(client: int) -> Initial:
        def draw(purpose: str, own: bool) -> Model:
            return drawn(purpose, client) if own else drawn(purpose)

        return Initial(*first, draw, structure)

    return initial
