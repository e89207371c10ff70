"""Which worker runs which client."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["measured", "share_out"]

SLACK = 0.1  # of the best time for all, by which a worker may be late before clients leave it
SHORT = 0.05  # seconds; a call no longer than this says nothing about a worker's speed


def share_out(
    amount: Mapping[int, float], owners: Mapping[int, int], speeds: Mapping[int, float]
) -> dict[int, list[int]]:
    """Clients by worker, so that all end at about the same time.

    A client stays with the worker that keeps its row unless that would hold up the others; whoever has none goes
    where it ends first, those with most work before the rest.

    Args:
        amount: work of each client.
        owners: the worker of clients that have one.
        speeds: of the workers, relative to each other.

    >>> share_out({0: 4, 1: 4, 2: 1, 3: 1}, {0: 7}, {7: 1.0, 8: 1.0})
    {7: [0, 2], 8: [1, 3]}
    >>> share_out({0: 4, 1: 4}, {0: 7, 1: 7}, {7: 1.0, 8: 1.0})
    {7: [0], 8: [1]}
    >>> share_out({0: 2, 1: 2, 2: 2}, {}, {7: 2.0, 8: 1.0})
    {7: [0, 1], 8: [2]}
    """
    best = sum(amount.values()) / sum(speeds.values())
    limit = (1 + SLACK) * max(best, max(amount.values(), default=0) / max(speeds.values()))
    shares: dict[int, list[int]] = {worker: [] for worker in speeds}
    load = dict.fromkeys(speeds, 0.0)

    def end(worker: int, client: int) -> float:
        return (load[worker] + amount[client]) / speeds[worker]

    def hand(worker: int, client: int) -> None:
        shares[worker].append(client)
        load[worker] += amount[client]

    leaving = []
    for client in sorted(amount, key=lambda client: (-amount[client], client)):
        owner = owners.get(client)
        if owner in load and end(owner, client) <= limit:
            hand(owner, client)
        else:
            leaving.append(client)
    for client in leaving:
        hand(min(load, key=lambda worker: (end(worker, client), worker)), client)
    return {worker: clients for worker, clients in shares.items() if clients}


def measured(speed: float, expected: float, seconds: float) -> float:
    """A worker's speed after a call that was expected to take a time, and took another.

    >>> measured(1.0, 2.0, 4.0), measured(1.0, 2.0, 0.01)
    (0.75, 1.0)
    """
    if seconds < SHORT:
        return speed
    return min(max(speed * (1 + expected / seconds) / 2, 0.1), 10.0)
