"""Lanes: which client runs where on a device, so that clients of unequal work keep it busy.

A lane holds one client at a time, and takes the next when that client is done.  Lanes run in step with each other, as
one lane group, or apart, each as a lane group at its own pace.  Where clients make about equally many steps, every
client has a lane and all run in step, which is fastest for a device.  Where the longest client makes half as many steps
again as the rest, lanes run apart, so that no step waits for the work of others.  Many clients of about the same size
take turns on fewer lanes in step, which keep the device busy to the end.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Job", "Layout", "assign", "choose_layout"]

# In units of one lane's share of a step of tfcnn_tf, which takes an H200 0.032 ms:
IDLE_STEP = 1.5  # cost of a step whatever its lanes
TURNS = 8.0  # the same where a lane that is done takes the next client
LONGEST = 3.0  # cost of a step of the longest client on a lane apart
APART = 1.05  # cost of a step of the other clients there
MOST_APART = 24  # lanes apart; more are no faster
GAIN = 1.2  # by which lanes apart must be faster, since each is captured for itself
DRAWN = 64  # cohorts drawn at random, on which the layout is chosen


class Job(NamedTuple):
    """One client's steps ``start <= t < stop`` on a lane."""

    client: int  # position in the group
    lane: int
    start: int
    stop: int


class Layout(NamedTuple):
    """Args:
    n_lanes: number of lanes.
    apart: whether every lane is a lane group of its own; else all lanes are one lane group and run in step.
    """

    n_lanes: int
    apart: bool

    @property
    def n_groups(self) -> int:
        """Number of lane groups."""
        return self.n_lanes if self.apart else 1

    @property
    def width(self) -> int:
        """Lanes of a lane group."""
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
