"""Clients of unequal work on lanes of equal length: a lane that is done takes the next client.

A cohort of C clients runs as L <= C lanes side by side.  Where clients make about as many steps as each other, every
client has its own lane; where a few make many more than the rest, fewer lanes keep the device busy to the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Job", "assign", "count_lanes"]

# What a step costs whatever its lanes, in lanes: on an H200 0.12 ms, and 0.03 for each of tfcnn_tf.
IDLE_STEP = 4
DRAWN = 64  # groups that the number of lanes is chosen on


class Job(NamedTuple):
    """One client's steps ``start <= t < stop`` on a lane."""

    client: int  # position in the group
    lane: int
    start: int
    stop: int


def count_lanes(population: Sequence[int], n_clients: int) -> int:
    """Lanes on which groups of ``n_clients`` are done soonest on average, from the steps of everybody.

    A group makes as many steps of all lanes as its longest client, or as its work divided by the lanes.  The number
    does not depend on who is in the group, so that one compiled step serves every round.

    >>> count_lanes([10] * 100, 20), count_lanes([10] * 90 + [60] * 10, 20)
    (20, 5)
    """
    random = np.random.default_rng(0)
    steps = np.sort(np.asarray(population))
    groups = np.stack([random.choice(steps, n_clients, replace=n_clients > len(steps)) for _ in range(DRAWN)])
    lanes = np.arange(1, n_clients + 1)
    rounds = np.maximum(groups.max(1)[:, None], np.ceil(groups.sum(1)[:, None] / lanes))
    return int(lanes[(rounds.mean(0) * (IDLE_STEP + lanes)).argmin()])


def assign(steps: Sequence[int], n_lanes: int) -> list[Job]:
    """The longest client first, each to the lane that is free first; clients without steps have no job.

    Where there are lanes enough, every client has the lane of its own number.

    >>> [tuple(job) for job in assign([1, 3, 2], 2)]
    [(1, 0, 0, 3), (2, 1, 0, 2), (0, 1, 2, 3)]
    """
    if n_lanes >= len(steps):
        return [Job(client, client, 0, count) for client, count in enumerate(steps) if count]
    free = [0] * n_lanes
    jobs = []
    for client in sorted(range(len(steps)), key=lambda c: -steps[c]):
        if steps[client]:
            lane = min(range(n_lanes), key=free.__getitem__)
            jobs.append(Job(client, lane, free[lane], free[lane] + steps[client]))
            free[lane] += steps[client]
    return jobs
