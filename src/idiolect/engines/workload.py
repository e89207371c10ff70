"""The federation's data as tensors, and the batches that stages read from it.

Shapes: C cohort, B batch rows, T steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from idiolect.core import Batch, Facts, Program, Stage, Tree, derive, steps_of
from idiolect.core.trees import tree_map
from idiolect.engines.precision import PRECISIONS, Precision
from idiolect.federation import BatchPlan, Federation, batches_per_epoch, plan_batches

__all__ = ["EVALUATION_ROWS", "Workload", "in_order", "sent"]

EVALUATION_ROWS = 256  # examples of one client in one evaluation batch
EVEN = 0.75  # mean over greatest size of clients of about equal size


@dataclass(frozen=True)
class Workload:
    """A federation placed on a device.

    Args:
        drop_single: leave out a trailing batch of one row (networks with batch normalisation).
        weighting: ``uniform`` or ``samples``: a client's weight in averages.
        like: a number of the run's precision on its device; x itself is integers where the data are tokens.
        precision: what the engines let the device round.
    """

    federation: Federation
    x: Tensor  # [N, ...]
    y: Tensor  # [N]
    seed: int
    drop_single: bool
    weighting: str
    like: Tensor  # []
    precision: Precision = PRECISIONS["float64"]

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
        rows, dtype = torch.from_numpy(federation.x), precision.storage
        x = rows.to(device=device, dtype=dtype if rows.is_floating_point() else rows.dtype).contiguous()
        y = torch.from_numpy(federation.y).to(device).contiguous()
        like = torch.ones((), dtype=dtype, device=device)
        return cls(federation, x, y, seed, drop_single, weighting, like, precision)

    def for_workers(self) -> Workload:
        """The workload less the arrays that no worker reads: the pool it was made from, and the server's test set."""
        nothing = self.federation.x[:0]
        federation = replace(
            self.federation, x=nothing, server_x=nothing, server_y=self.federation.server_y[:0]
        )
        return replace(self, federation=federation)

    @property
    def device(self) -> torch.device:
        return self.y.device

    def copied(self, tree: Tree) -> Tree:
        """Returns a copy of the tree on the device."""
        return tree_map(lambda leaf: leaf.to(self.device, copy=True), tree)

    def labels(self, client: int, split: str) -> Tensor:
        """Returns the labels of a client's split, in its order."""
        rows = getattr(self.federation.clients[client], split)
        return self.y[torch.from_numpy(rows).to(self.device)]

    def facts(self, client: int) -> Facts:
        counts, samples, weights = self._facts
        return Facts(counts[client], samples[client], weights[client])

    def facts_of(self, clients: list[int]) -> Facts:
        """Of several clients, a row each."""
        rows = sent(np.asarray(clients), self.y.device)
        return Facts(*(fact.index_select(0, rows) for fact in self._facts))

    @cached_property
    def _facts(self) -> Facts:
        """Of all clients, a row each."""
        counts = torch.from_numpy(self.federation.class_counts()).to(self.like)
        samples = torch.tensor([float(len(rows.train)) for rows in self.federation.clients]).to(self.like)
        return Facts(counts, samples, samples if self.weighting == "samples" else torch.ones_like(samples))

    def steps(self, program: Program, stage: Stage, client: int) -> int:
        return self._steps_over(getattr(self.federation.clients[client], stage.split), program, stage)

    def _steps_over(self, rows: np.ndarray, program: Program, stage: Stage) -> int:
        if stage.measure is not None:
            return -(-len(rows) // EVALUATION_ROWS)
        per_epoch = batches_per_epoch(len(rows), program.scene.batch_size, self.drop_single)
        return steps_of(stage, program.scene, per_epoch)

    def plan(
        self, program: Program, stage: Stage, client: int, with_keys: bool = True
    ) -> tuple[BatchPlan, dict[str, np.ndarray]]:
        """The batches of one client in one stage, and the draws of its steps by part."""
        rows = getattr(self.federation.clients[client], stage.split)
        if stage.measure is not None:
            return in_order(rows), {}
        steps = self._steps_over(rows, program, stage)
        position = (stage.stream, program.clock.round, client)
        plan = plan_batches(
            rows,
            steps * stage.batches_per_step,
            program.scene.batch_size,
            seed=self.seed,
            position=position,
            drop_single=self.drop_single,
            with_keys=with_keys,
        )
        draws = {}
        for part in program.method.parts:
            if part.draws:
                width = part.draws(program.task.structure)
                random = np.random.default_rng(derive(self.seed, "draws", part.name, stage.name, *position))
                draws[part.name] = random.random((steps, width))
        return plan, draws

    def extent(self, program: Program, stage: Stage) -> tuple[list[int], int]:
        """The steps that each client of the population makes in a stage, and the rows of its largest batch."""
        steps = [self.steps(program, stage, client) for client in range(self.federation.population)]
        return steps, self.width(program, stage)

    def width(self, program: Program, stage: Stage) -> int:
        """The rows of the largest batch that anybody has in a stage, newcomers included."""
        size = EVALUATION_ROWS if stage.measure is not None else program.scene.batch_size
        return min(size, int(self.federation.clients.sizes(stage.split).max()))

    @cached_property
    def is_even(self) -> bool:
        """Whether clients, newcomers included, are of about equal size."""
        sizes = self.federation.clients.sizes("train")
        return bool(sizes.mean() >= EVEN * sizes.max())

    def batch(
        self, index: np.ndarray, mask: np.ndarray, key: np.ndarray, draws: dict[str, np.ndarray]
    ) -> Batch:
        sent = [torch.from_numpy(array).to(self.y.device) for array in (index, mask, key)]
        return self.gather(*sent, {part: torch.from_numpy(d).to(self.like) for part, d in draws.items()})

    def gather(self, index: Tensor, mask: Tensor, key: Tensor, draws: dict[str, Tensor]) -> Batch:
        """The rows at ``index``, of any shape, on the device."""
        rows = index.flatten()
        x, y = (pool.index_select(0, rows).unflatten(0, index.shape) for pool in (self.x, self.y))
        return Batch(x, y, mask.to(self.like.dtype), key, draws)

    def single(
        self, index: np.ndarray, mask: np.ndarray, key: np.ndarray, draws: dict[str, np.ndarray]
    ) -> Batch:
        """A batch of one client; an image's channels lie last, which CPUs convolve and pool faster."""
        batch = self.batch(index, mask, key, draws)
        return batch._replace(x=_channels_last(batch.x)) if batch.x.dim() == 4 else batch

    def single_feed(
        self, program: Program, stage: Stage, client: int
    ) -> Iterator[tuple[tuple[Batch, ...], None]]:
        """One client's batches without padding."""
        plan, draws = self.plan(program, stage, client)
        m = stage.batches_per_step
        for t in range(len(plan.index) // m):
            drawn = {part: d[t] for part, d in draws.items()}
            picks = [(u, plan.mask[u]) for u in range(t * m, (t + 1) * m)]
            yield tuple(self.single(plan.index[u][r], r[r], plan.key[u][r], drawn) for u, r in picks), None


def sent(array: np.ndarray, device: torch.device) -> Tensor:
    """On the device, without waiting for what it is doing."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def in_order(rows: np.ndarray, size: int = EVALUATION_ROWS) -> BatchPlan:
    """Rows in their own order, for evaluation and measuring."""
    n = -(-len(rows) // size)
    index, mask = np.zeros((n, size), np.int64), np.zeros((n, size), bool)
    index.ravel()[: len(rows)], mask.ravel()[: len(rows)] = rows, True
    return BatchPlan(index, mask, np.zeros((n, size), np.int64))


def _channels_last(images: Tensor) -> Tensor:
    """Strides say so even for a single channel, so that layers after it keep to them."""
    _, channels, height, width = images.shape
    strides = (height * width * channels, 1, width * channels, channels)
    return images.contiguous(memory_format=torch.channels_last).as_strided(images.shape, strides)
