"""The work of a round: optimisation steps, floating-point operations, and the bytes it must move at least.

Everything is counted while the plain loop makes a round that is not timed: steps by a hook on torch's optimisers,
passes by hooks on its networks, operations by ``torch.utils.flop_counter`` (two for a multiplication with its
addition; convolutions and matrix products only).  The bytes are a model, stated in ``traffic``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["Work", "activations", "count_steps", "count_work", "traffic"]

_FUSED = (nn.ReLU, nn.Flatten, nn.Dropout, nn.Identity)  # need not touch memory of their own


@dataclass
class Work:
    """Args:
    updated: parameters that optimisers moved, summed over steps.
    passes, rows: forward passes with a backward pass, and the examples in them.
    looks, looked: forward passes without one, and the examples in them.
    """

    flops: int = 0
    steps: int = 0
    updated: int = 0
    passes: int = 0
    rows: int = 0
    looks: int = 0
    looked: int = 0


@contextmanager
def count_steps(work: Work, learning_rate: float | None = None) -> Iterator[None]:
    """Counts every step of a torch optimiser in this process; of those alone that have ``learning_rate``."""

    def stepped(optimiser: Optimizer, *_: Any) -> None:
        if learning_rate is None or optimiser.param_groups[0]["lr"] == learning_rate:
            work.steps += 1
            work.updated += sum(p.numel() for group in optimiser.param_groups for p in group["params"])

    handle = register_optimizer_step_post_hook(stepped)
    try:
        yield
    finally:
        handle.remove()


def count_work(go: Callable[[], None], nets: Sequence[nn.Module]) -> Work:
    """The work of ``go``, which runs torch optimisers on ``nets``."""
    work = Work()

    def passed(net: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if output.requires_grad:
            work.passes, work.rows = work.passes + 1, work.rows + len(inputs[0])
        else:
            work.looks, work.looked = work.looks + 1, work.looked + len(inputs[0])

    with ExitStack() as hooks:
        hooks.enter_context(count_steps(work))
        for net in nets:
            hooks.callback(net.register_forward_hook(passed).remove)
        counter = hooks.enter_context(FlopCounterMode(display=False))
        go()
    work.flops = counter.get_total_flops()
    return work


def activations(net: nn.Module, image: Tensor) -> int:
    """Scalars that the layers make of one image, but those whose work can be fused into a neighbour's."""
    total = 0

    def made(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        nonlocal total
        total += output.numel()

    leaves = [m for m in net.modules() if not list(m.children()) and not isinstance(m, _FUSED)]
    with ExitStack() as hooks:
        for leaf in leaves:
            hooks.callback(leaf.register_forward_hook(made).remove)
        training = net.training
        with torch.no_grad():
            net.eval()(image[None])
        net.train(training)
    return total


def traffic(work: Work, parameters: int, made: int, image: int, itemsize: int) -> int:
    """Bytes as if each tensor travelled once for each use and elementwise layers were fused into their neighbours.

    A parameter is read forward and backward; when it moves, its gradient is written and read, its velocity and
    its value are each read and written.  An activation is written, read by the next layer and read backward, and
    its gradient is written and read.  An input is read forward and backward.  Without a backward pass parameters
    and inputs are read once, activations written and read.

    Args:
        parameters, made, image: scalars of the network, of its activations for one image, and of the image.
    """
    scalars = 6 * work.updated + 2 * parameters * work.passes + (5 * made + 2 * image) * work.rows
    scalars += parameters * work.looks + (2 * made + image) * work.looked
    return scalars * itemsize
