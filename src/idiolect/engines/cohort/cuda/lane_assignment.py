"""Lanes: which client runs where on a device, so that clients of unequal work keep it busy, and the lanes' memory.

A lane holds one client at a time, and takes the next when that client is done.  Lanes run in step with each other, as
one lane group, or apart, each as a lane group at its own pace.  Where clients make about equally many steps, every
client has a lane and all run in step, which is fastest for a device.  Where the longest client makes half as many steps
again as the rest, lanes run apart, so that no step waits for the work of others.  Many clients of about the same size
take turns on fewer lanes in step, which keep the device busy to the end.

In memory, all leaves of one lane group, or of one client, lie in one row.  A client that has a lane group to itself is
one row, so that moving it takes one copy for each type.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["Job", "Kind", "LaneMemory", "Layout", "assign", "choose_layout", "copy_all", "on_lanes"]

# In units of one lane's share of a step of tfcnn_tf, which takes an H200 0.032 ms:
IDLE_STEP = 1.5  # cost of a step whatever its lanes
TURNS = 8.0  # the same where a lane that is done takes the next client
LONGEST = 3.0  # cost of a step of the longest client on a lane apart
APART = 1.05  # cost of a step of the other clients there
MOST_APART = 24  # lanes apart; more are no faster
GAIN = 1.2  # lanes apart must be faster by this factor, since each is captured by itself
DRAWN = 64  # cohorts drawn at random, on which the layout is chosen
ALIGNED = 64  # each leaf begins at a multiple of so many numbers, so that kernels read several at once
KERNEL = 4  # dimensions of a convolution's kernel; its channels lie last, as in batched layers

Kind = tuple[torch.Size, torch.dtype]  # of one lane's part of a leaf


class Job(NamedTuple):
    """One client's steps ``start <= t < stop`` on a lane."""

    client: int  # position in the group
    lane: int
    start: int
    stop: int


class Layout(NamedTuple):
    """How many lanes there are, and whether they run in step.

    Args:
        n_lanes: the number of lanes.
        apart: whether every lane is a lane group of its own; else all lanes are one lane group and run in step.
    """

    n_lanes: int
    apart: bool

    @property
    def n_groups(self) -> int:
        """The number of lane groups."""
        return self.n_lanes if self.apart else 1

    @property
    def width(self) -> int:
        """The number of lanes in a lane group."""
        return 1 if self.apart else self.n_lanes

    def most_steps(self, population: Sequence[int], n_clients: int) -> int:
        """Returns an upper bound on the steps of all lane groups together, whoever the ``n_clients`` are."""
        most = sorted(population, reverse=True)[:n_clients]
        if self.apart:
            return sum(most)
        return most[0] + (sum(most) // self.n_lanes if self.n_lanes < n_clients else 0)


def choose_layout(population: Sequence[int], n_clients: int) -> Layout:
    """Returns the lane layout with the lowest expected time for a cohort of ``n_clients``.

    Lanes in step make as many steps as the longest client, or as all clients' steps divided by the lanes.  The layout
    does not depend on who is in the cohort, so that one compiled step serves every round.

    Args:
        population: number of steps of every client.

    >>> choose_layout([10] * 100, 20), choose_layout([10] * 90 + [60] * 10, 20)
    (Layout(n_lanes=20, apart=False), Layout(n_lanes=20, apart=True))
    """
    random = np.random.default_rng(0)
    steps = np.sort(np.asarray(population))
    groups = np.stack([random.choice(steps, n_clients, replace=n_clients > len(steps)) for _ in range(DRAWN)])
    longest, work = groups.max(1)[:, None], groups.sum(1)[:, None]
    lanes = np.arange(1, n_clients + 1)
    a_step = lanes + np.where(lanes < n_clients, TURNS, IDLE_STEP)
    in_step = (np.maximum(longest, np.ceil(work / lanes)) * a_step).mean(0)
    apart = (LONGEST * longest + APART * (work - longest)).mean()
    if GAIN * apart < in_step.min():
        return Layout(min(n_clients, MOST_APART), apart=True)
    return Layout(int(lanes[in_step.argmin()]), apart=False)


def assign(steps: Sequence[int], layout: Layout) -> list[Job]:
    """Assigns clients to lanes, the longest first, each to the lane that is free first.

    Where lanes in step are enough for all, every client has the lane of its own number.  Clients without steps get no
    job.

    Args:
        steps: number of steps of each client.

    >>> [tuple(job) for job in assign([1, 3, 2], Layout(2, apart=False))]
    [(1, 0, 0, 3), (2, 1, 0, 2), (0, 1, 2, 3)]
    """
    if layout.n_lanes >= len(steps) and not layout.apart:
        return [Job(client, client, 0, count) for client, count in enumerate(steps) if count]
    free = [(0, lane) for lane in range(layout.n_lanes)]
    jobs = []
    for client in sorted(range(len(steps)), key=lambda c: -steps[c]):
        if steps[client]:
            start, lane = free[0]
            stop = start + steps[client]
            heapq.heapreplace(free, (stop, lane))
            jobs.append(Job(client, lane, start, stop))
    return jobs


class LaneMemory:
    """The leaves of the clients on all lanes, in one block of memory for each type.

    Args:
        width: the lanes of a row; if it is not 1, there is one row.
        memory: by type, the numbers of all rows [N, P].

    Attributes:
        leaves: the leaves of all lanes [L, ...].
    """

    def __init__(self, kinds: Sequence[Kind], width: int, memory: Mapping[torch.dtype, Tensor]) -> None:
        self._kinds, self._width, self._memory = kinds, width, memory
        self._places, _ = _layout(kinds, width)
        self.leaves = [self._leaf(n, slice(None)) for n in range(len(kinds))]

    @classmethod
    def zeros(cls, kinds: Sequence[Kind], n_rows: int, width: int, device: torch.device) -> LaneMemory:
        _, sizes = _layout(kinds, width)
        memory = {
            dtype: torch.zeros(n_rows, size, dtype=dtype, device=device) for dtype, size in sizes.items()
        }
        return cls(kinds, width, memory)

    def row(self, number: int) -> list[Tensor]:
        """Returns the leaves of the lanes of one row."""
        return [self._leaf(n, slice(number, number + 1)) for n in range(len(self._kinds))]

    def _leaf(self, n: int, which: slice) -> Tensor:
        size, dtype = self._kinds[n]
        rows = self._memory[dtype][which]
        numbers = rows[:, self._places[n] :][:, : self._width * size.numel()]
        return on_lanes(numbers.view(len(rows) * self._width, size.numel()), size)

    def fill(self, leaves: Mapping[int, Tensor]) -> None:
        """Copies leaves of all lanes into the memory, by their number."""
        copy_all([self.leaves[n] for n in leaves], list(leaves.values()))

    def copy_rows(self, others: LaneMemory, lane_of: Tensor) -> None:
        """Copies every row of ``others`` to the lane that ``lane_of`` names; a lane must be a row of both.

        It takes one copy for each type: one for each leaf would keep the host busy and the device waiting.
        """
        for dtype, numbers in self._memory.items():
            numbers.index_copy_(0, lane_of, others._memory[dtype])

    def copied(self, n: int, lane_of: Tensor | None) -> Tensor:
        """Returns a contiguous copy of one leaf.

        Args:
            lane_of: the lane of each of its rows; None for the lanes in their order.
        """
        if lane_of is None:
            return self.leaves[n].clone(memory_format=torch.contiguous_format)
        return self.leaves[n].index_select(0, lane_of)

    def clone(self) -> LaneMemory:
        memory = {dtype: numbers.clone() for dtype, numbers in self._memory.items()}
        return LaneMemory(self._kinds, self._width, memory)

    def lanes(self, by_leaf: bool) -> list[Sequence[Tensor]]:
        """Returns the parts of all lanes: by type, the rows of lanes, or ``by_leaf`` the lanes' parts of each leaf."""
        parts = self.leaves if by_leaf else self._memory.values()
        return [part.unbind() for part in parts]


def on_lanes(numbers: Tensor, size: torch.Size) -> Tensor:
    """Views [L, numbers] as a leaf [L, *size]; the channels of a convolution's kernel lie last."""
    if len(size) < KERNEL:
        return torch.unflatten(numbers, 1, size) if size else numbers.squeeze(1)
    return torch.unflatten(numbers, 1, (*size[:-3], *size[-2:], size[-3])).movedim(-1, -3)


def _layout(kinds: Sequence[Kind], width: int) -> tuple[list[int], dict[torch.dtype, int]]:
    """Returns where each leaf begins in a row of its type, and how long rows are."""
    places: list[int] = []
    sizes: dict[torch.dtype, int] = {}
    for size, dtype in kinds:
        places.append(sizes.get(dtype, 0))
        sizes[dtype] = places[-1] + -(-width * size.numel() // ALIGNED) * ALIGNED
    return places, sizes


def copy_all(into: Sequence[Tensor], out_of: Sequence[Tensor]) -> None:
    """Copies tensors grouped by dtype, because a mixed batch falls back to one copy per tensor."""
    for dtype in {tensor.dtype for tensor in into}:
        torch._foreach_copy_(
            [tensor for tensor in into if tensor.dtype == dtype],
            [tensor for tensor in out_of if tensor.dtype == dtype],
        )
