"""The roofline of a round: the least time that it can take by arithmetic, and by memory traffic.

    floor = max(operations / peak operations per second, bytes / peak bytes per second)

A row's share of a floor is the floor divided by its time; the peaks are measured in the same run.  The work of a round
is counted while the plain loop makes a round that is not timed: steps by a hook on torch's optimisers, passes by hooks
on its networks, operations by ``torch.utils.flop_counter`` (two for a multiplication with its addition; convolutions
and matrix products only).  The bytes follow a model, stated in ``traffic``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["Floor", "Peaks", "Work", "activations", "count_steps", "count_work", "floor_of", "traffic"]


class Peaks(NamedTuple):
    """Operations per second of a large matrix product, and bytes per second of a large copy."""

    flops: float
    bytes: float

    def best(self, other: Peaks) -> Peaks:
        """Returns the higher of both rates.

        >>> Peaks(1.0, 4.0).best(Peaks(2.0, 3.0))
        Peaks(flops=2.0, bytes=4.0)
        """
        return Peaks(max(self.flops, other.flops), max(self.bytes, other.bytes))


class Floor(NamedTuple):
    """The least seconds that a round can take, by arithmetic and by memory traffic."""

    arithmetic: float
    memory: float

    def shares(self, seconds: float) -> tuple[float, float]:
        """Returns the share of each floor in a measured time.

        >>> Floor(1.0, 0.5).shares(4.0)
        (0.25, 0.125)
        """
        return self.arithmetic / seconds, self.memory / seconds


def floor_of(flops: float, moved: float, peaks: Peaks) -> Floor:
    """Returns the floor of work that is given in operations and bytes.

    >>> floor_of(200.0, 30.0, Peaks(100.0, 10.0))
    Floor(arithmetic=2.0, memory=3.0)
    """
    return Floor(flops / peaks.flops, moved / peaks.bytes)


_FUSED = (nn.ReLU, nn.Flatten, nn.Dropout, nn.Identity)  # can be fused into their neighbours


@dataclass
class Work:
    """Counts of one round.

    Args:
        updated: parameters that optimisers updated, summed over steps.
        passes, rows: forward passes followed by a backward pass, and the examples in them.
        looks, looked: forward passes without a backward pass, and the examples in them.
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
    """Counts the steps of torch optimisers in this process, or only of those with this ``learning_rate``."""

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
    """Counts the work of ``go``, which runs torch optimisers on ``nets``."""
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
    """Returns how many scalars the layers produce for one image, leaving out layers that can be fused."""
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
    """Returns the bytes moved if each tensor travels once for each use and elementwise layers are fused.

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
