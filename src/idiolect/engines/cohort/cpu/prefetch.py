"""What the blocks of a stage read on a CPU, some of it gathered before it is needed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple

from idiolect.core import Batch
from idiolect.engines.cohort.batches import CohortBatches
from idiolect.engines.cohort.client_blocks import Block, blocks_of
from idiolect.engines.packing import Feed

__all__ = ["StageFeed"]

READY_BYTES = 32 << 20  # of inputs, after which no more are gathered ahead


class StageFeed(NamedTuple):
    """The batches of a stage, what their steps compute, and how they are run.

    Args:
        what: a key of what the steps compute; None where they are vmapped.
        sizes: of the blocks that a number of clients is divided into.
        width: rows of every batch; None for as many as it needs.
        ready: first batches of the first block.
    """

    what: Hashable
    batches: CohortBatches
    sizes: Callable[[int], list[int]]
    width: int | None
    ready: tuple[tuple[Batch, ...], ...] = ()

    def blocks(self) -> Iterator[Block]:
        return blocks_of(self.batches.steps, self.sizes)

    def steps(self, block: Block) -> Feed:
        """What the steps of a block read."""
        ready = self.ready if block.rows.start == block.start == 0 else ()
        yield from ((batches, None) for batches in ready)
        yield from self.batches.between(block.rows, block.start + len(ready), block.stop, self.width)

    def with_some_ready(self) -> StageFeed:
        block = next(self.blocks(), None)
        found: list[tuple[Batch, ...]] = []
        n_bytes = 0
        for batches, _ in self.steps(block) if block else ():
            found.append(batches)
            n_bytes += sum(batch.x.nbytes for batch in batches)
            if n_bytes > READY_BYTES:
                break
        return self._replace(ready=tuple(found))
