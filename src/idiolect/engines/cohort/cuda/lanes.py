"""Clients of unequal work side by side on a device, on lanes: a lane that is done takes the next client.

Lanes run in step with each other, as one program, or apart, each as a program at its own pace.  Where clients make
about as many steps as each other, everybody has a lane and they run in step, which is fastest for a device.  Where the
longest makes half as many again as the rest, lanes run apart: none of their steps waits for the work of others.  Many
clients of about the same size take turns on fewer lanes in step, which keep the device busy to the end.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Job", "Layout", "assign", "lay_out"]

# In lanes' work of a step of tfcnn_tf, which takes an H200 0.032 ms:
IDLE_STEP = 1.5  # what a step costs whatever its lanes
TURNS = 8.0  # the same where a lane that is done takes the next client
LONGEST = 3.0  # a step of the longest client on a lane apart
APART = 1.05  # of the other clients
MOST_APART = 24  # more are no faster
GAIN = 1.2  # that lanes apart must bring: each is captured for itself
DRAWN = 64  # groups that the layout is chosen on


class Job(NamedTuple):
    """One client's steps ``start <= t < stop`` on a lane."""

    client: int  # position in the group
    lane: int
    start: int
    stop: int


class Layout(NamedTuple):
    """So many lanes, in step as one program or apart, each as a program of its own."""

    n_lanes: int
    apart: bool

    @property
    def n_programs(self) -> int:
        return self.n_lanes if self.apart else 1

    @property
    def width(self) -> int:
        """Lanes of a program."""
        return 1 if self.apart else self.n_lanes

    def most_steps(self, population: Sequence[int], n_clients: int) -> int:
        """Of all programs together, whoever the ``n_clients`` are."""
        most = sorted(population, reverse=True)[:n_clients]
        if self.apart:
            return sum(most)
        return most[0] + (sum(most) // self.n_lanes if self.n_lanes < n_clients else 0)


def lay_out(population: Sequence[int], n_clients: int) -> Layout:
    """That on which groups of ``n_clients`` are done soonest on average, from the steps of everybody.

    Lanes in step make as many steps as the longest client, or as all of them divided by the lanes.  The layout does not
    depend on who is in the group, so that one compiled step serves every round.

    >>> lay_out([10] * 100, 20), lay_out([10] * 90 + [60] * 10, 20)
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
    """The longest client first, each to the lane that is free first; clients without steps have no job.

    Where lanes in step are enough, every client has that of its own number.

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
