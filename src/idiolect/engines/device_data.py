"""The workload of an engine: a federation's data as tensors on a device, and the batches that stages read from it.

Shapes: C cohort, B batch rows, T steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from idiolect.core import Batch, Facts, Program, Stage, Tree, derive, steps_of
from idiolect.core.noise import NoiseSource, SecureNoise, SeededNoise
from idiolect.core.trees import tree_map
from idiolect.engines.precision import PRECISIONS, Precision
from idiolect.federation import (
    BatchPlan,
    Federation,
    Store,
    batches_per_epoch,
    plan_batches,
    plan_poisson_batches,
    poisson_width,
)

__all__ = ["EVALUATION_ROWS", "Workload", "in_order", "sent"]

T = TypeVar("T")
EVALUATION_ROWS = 256  # examples of one client in one evaluation batch
EVEN = 0.75  # clients count as equally large if their mean size is this part of the largest


@dataclass(frozen=True)
class Workload:
    """A federation placed on a device.

    Args:
        drop_single: leaves out a last batch of one row, for networks with batch normalisation.
        weighting: a client's weight in averages, ``uniform`` or ``samples``.
        like: a number in the run's precision on its device; x itself holds integers where the data are tokens.
        precision: what engines compute in.
        is_deployed: the data are those of a site, so that what protects them is drawn from the operating system's
            secure source and not from the seed.
    """

    federation: Federation
    x: Tensor  # [N, ...]
    y: Tensor  # [N] classes, or numbers [N, K]
    seed: int
    drop_single: bool
    weighting: str
    like: Tensor  # []
    precision: Precision = PRECISIONS["float64"]
    is_deployed: bool = False

    @classmethod
    def place(
        cls,
        federation: Federation,
        *,
        seed: int,
        drop_single: bool,
        weighting: str,
        precision: Precision,
        device: str,
    ) -> Workload:
        """Moves the data of a federation to a device."""
        rows, dtype = torch.from_numpy(federation.x), precision.storage
        x = rows.to(device=device, dtype=dtype if rows.is_floating_point() else rows.dtype).contiguous()
        targets = torch.from_numpy(federation.y)
        y = targets.to(
            device=device, dtype=dtype if targets.is_floating_point() else targets.dtype
        ).contiguous()
        like = torch.ones((), dtype=dtype, device=device)
        return cls(federation, x, y, seed, drop_single, weighting, like, precision)

    def for_workers(self) -> Workload:
        """Returns the workload without arrays that no worker reads: the data's source and the server's test set."""
        nothing = self.federation.x[:0]
        federation = replace(
            self.federation, x=nothing, server_x=nothing, server_y=self.federation.server_y[:0]
        )
        return replace(self, federation=federation)

    @property
    def noise(self) -> NoiseSource:
        """The source of the random numbers that protect data."""
        return SecureNoise() if self.is_deployed else SeededNoise(self.seed)

    @property
    def device(self) -> torch.device:
        return self.y.device

    def copied(self, tree: T) -> T:
        """Returns a copy of the tree on the device."""
        return tree_map(lambda leaf: leaf.to(self.device, copy=True), tree)

    def store_in_memory(self, create: Callable[[int], Tree], examples: Iterable[Tree]) -> Store:
        """Returns a store of all clients' private state in the device's memory, which cannot be saved.

        Args:
            create: returns the first private state of a client.
            examples: trees of all the forms that private state can have.
        """
        return Store.in_memory(create, self.federation.population, examples, self.device)

    def at(self, round: int) -> Workload:
        """Returns the workload of a round counted from 0: the same data on the device, the rows of that time."""
        if not self.federation.later:
            return self
        return [work for first, work in self._phases if first <= round][-1]

    @cached_property
    def _phases(self) -> list[tuple[int, Workload]]:
        """The first round and the workload of every time between changes of the clients' rows."""
        firsts = [0, *(rows.first for rows in self.federation.later)]
        return [(first, replace(self, federation=self.federation.at(first))) for first in firsts]

    def labels(self, client: int, split: str) -> Tensor:
        """Returns the labels of a client's split, in its order."""
        rows = getattr(self.federation.clients[client], split)
        return self.y[torch.from_numpy(rows).to(self.device)]

    def facts(self, client: int) -> Facts:
        """Returns the facts of one client: samples by class, samples, weight."""
        counts, samples, weights = self._facts
        return Facts(counts[client], samples[client], weights[client])

    def facts_of(self, clients: list[int]) -> Facts:
        """Returns the facts of several clients, a row each."""
        rows = sent(np.asarray(clients), self.device)
        return Facts(*(fact.index_select(0, rows) for fact in self._facts))

    @cached_property
    def _facts(self) -> Facts:
        """The facts of all clients, a row each."""
        counts = torch.from_numpy(self.federation.class_counts()).to(self.like)
        samples = torch.tensor([float(len(rows.train)) for rows in self.federation.clients]).to(self.like)
        return Facts(counts, samples, samples if self.weighting == "samples" else torch.ones_like(samples))

    def steps(self, program: Program, stage: Stage, client: int) -> int:
        """Returns the number of steps that a client makes in a stage."""
        held = self.at(program.clock.round).federation.clients[client]
        return self._steps_over(getattr(held, stage.split), program, stage)

    def _steps_over(self, rows: NDArray[np.int64], program: Program, stage: Stage) -> int:
        if stage.measure is not None:
            return -(-len(rows) // EVALUATION_ROWS)
        per_epoch = batches_per_epoch(len(rows), program.scene.batch_size, self.drop_single)
        return steps_of(stage, program.scene, per_epoch)

    def plan(
        self, program: Program, stage: Stage, client: int, with_keys: bool = True
    ) -> tuple[BatchPlan, dict[str, NDArray[Any]]]:
        """Returns the batches of one client in one stage, and by part the random draws of its steps."""
        rows = getattr(self.at(program.clock.round).federation.clients[client], stage.split)
        if stage.measure is not None:
            return in_order(rows), {}
        steps = self._steps_over(rows, program, stage)
        position = (stage.stream, program.clock.round, client)
        size = program.scene.batch_size
        if stage.sampling == "poisson":
            own = (stage.name, *position)  # no two stages take the same examples
            chances = self.noise.uniform((steps, len(rows)), "batches", *own)
            width = self.width(program, stage)
            plan = plan_poisson_batches(
                rows, chances, size, width, seed=self.seed, position=own, with_keys=with_keys
            )
        else:
            plan = plan_batches(
                rows,
                steps * stage.batches_per_step,
                size,
                seed=self.seed,
                position=position,
                drop_single=self.drop_single,
                with_keys=with_keys,
            )
        return plan, self.draws(program, stage, steps, *position)

    def draws(
        self, program: Program, stage: Stage, steps: int, *position: int | str
    ) -> dict[str, NDArray[Any]]:
        """Returns by part the random draws of the steps of a stage, [steps, as many as the part declares]."""
        draws: dict[str, NDArray[Any]] = {}
        for part in program.method.parts:
            if part.draws:
                width = part.draws(program.task.structure)
                random = np.random.default_rng(derive(self.seed, "draws", part.name, stage.name, *position))
                draws[part.name] = random.random((steps, width))
            if part.noise and stage.objective is None:
                shape = (steps, part.noise(program.task.structure))
                kind = np.float32 if self.like.dtype == torch.float32 else np.float64
                draws[part.name] = self.noise.normal(shape, part.name, stage.name, *position).astype(kind)
        return draws

    def extent(self, program: Program, stage: Stage) -> tuple[list[int], int]:
        """Returns the steps that each client of the population makes in a stage, and the rows of the largest batch."""
        steps = [self.steps(program, stage, client) for client in range(self.federation.population)]
        return steps, self.width(program, stage)

    def width(self, program: Program, stage: Stage) -> int:
        """Returns the rows of the largest batch of any client in a stage, newcomers included."""
        size = EVALUATION_ROWS if stage.measure is not None else program.scene.batch_size
        largest = int(self.at(program.clock.round).federation.clients.sizes(stage.split).max())
        return poisson_width(largest, size) if stage.sampling == "poisson" else min(size, largest)

    @cached_property
    def is_even(self) -> bool:
        """Whether clients, newcomers included, are of about equal size."""
        sizes = self.federation.clients.sizes("train")
        return bool(sizes.mean() >= EVEN * sizes.max())

    def batch(
        self,
        index: NDArray[np.int64],
        mask: NDArray[np.bool_],
        key: NDArray[np.int64],
        draws: dict[str, NDArray[np.float64]],
    ) -> Batch:
        """Returns the batch of the rows at ``index``, which may have any shape."""
        rows, real, keys = (torch.from_numpy(array).to(self.device) for array in (index, mask, key))
        return self.gather(
            rows, real, keys, {part: torch.from_numpy(d).to(self.like) for part, d in draws.items()}
        )

    def gather(self, index: Tensor, mask: Tensor, key: Tensor, draws: dict[str, Tensor]) -> Batch:
        """Returns the batch of the rows at ``index``, which may have any shape, from tensors on the device."""
        rows = index.flatten()
        x, y = (pool.index_select(0, rows).unflatten(0, index.shape) for pool in (self.x, self.y))
        return Batch(x, y, mask.to(self.like.dtype), key, draws)

    def single(
        self,
        index: NDArray[np.int64],
        mask: NDArray[np.bool_],
        key: NDArray[np.int64],
        draws: dict[str, NDArray[np.float64]],
    ) -> Batch:
        """Returns a batch of one client; the channels of images lie last, which CPUs convolve and pool faster."""
        batch = self.batch(index, mask, key, draws)
        return batch._replace(x=_channels_last(batch.x)) if batch.x.dim() == 4 else batch

    def single_feed(
        self, program: Program, stage: Stage, client: int
    ) -> Iterator[tuple[tuple[Batch, ...], None]]:
        """Yields the batches of one client, step by step, without padding."""
        plan, draws = self.plan(program, stage, client)
        m = stage.batches_per_step
        for t in range(len(plan.index) // m):
            drawn = {part: d[t] for part, d in draws.items()}
            picks = [(u, _held(plan.mask[u])) for u in range(t * m, (t + 1) * m)]
            yield (
                tuple(
                    self.single(plan.index[u][r], plan.mask[u][r], plan.key[u][r], drawn) for u, r in picks
                ),
                None,
            )


def _held(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns the places of the real rows of a batch, or of one row of padding where there is none."""
    return mask if mask.any() else np.arange(len(mask)) == 0


def sent(array: NDArray[Any], device: torch.device) -> Tensor:
    """Returns the array as a tensor on the device, without waiting for the device."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def in_order(rows: NDArray[np.int64], size: int = EVALUATION_ROWS) -> BatchPlan:
    """Returns batches of rows in their own order, for evaluation and measuring."""
    n = -(-len(rows) // size)
    index, mask = np.zeros((n, size), np.int64), np.zeros((n, size), bool)
    index.ravel()[: len(rows)], mask.ravel()[: len(rows)] = rows, True
    return BatchPlan(index, mask, np.zeros((n, size), np.int64))


def _channels_last(images: Tensor) -> Tensor:
    """Returns images in channels-last memory, with strides that say so even for a single channel.

    Layers choose the memory format of their outputs by the strides of their inputs.
    """
    _, channels, height, width = images.shape
    strides = (height * width * channels, 1, width * channels, channels)
    return images.contiguous(memory_format=torch.channels_last).as_strided(images.shape, strides)
