"""Load balancing: splits the clients of a call among workers so that all workers end at about the same time."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["balanced_shares", "equal_shares", "measured_speed", "shares_by_owner"]

SLACK = 0.1  # part of the best time for all by which a worker may be late before its clients move
SHORT = 0.05  # seconds; a shorter call says nothing about a worker's speed


def equal_shares(work: dict[int, int], most: int) -> list[list[int]]:
    """Splits clients into at most ``most`` shares of equal size; the clients with the most work come first.

    >>> equal_shares({0: 5, 1: 3, 2: 7, 3: 1, 4: 3}, 3)
    [[2, 0], [1, 4], [3]]
    """
    order = _longest_first(work)
    size = -(-len(order) // most)
    return [order[start : start + size] for start in range(0, len(order), size)]


def balanced_shares(work: dict[int, int], count: int) -> list[list[int]]:
    """Splits clients into ``count`` shares of about equal work.

    The number of clients in a share is bounded, because what runs before and after the steps is traced once for each
    number of clients.

    >>> balanced_shares({0: 5, 1: 3, 2: 7, 3: 1, 4: 3}, 2)
    [[2, 4], [0, 1, 3]]
    """
    most = -(-len(work) // count)
    shares: list[list[int]] = [[] for _ in range(min(count, len(work)))]
    loads = [0] * len(shares)
    for client in _longest_first(work):
        open_places = (place for place, share in enumerate(shares) if len(share) < most)
        place = min(open_places, key=lambda place: (loads[place], len(shares[place])))
        shares[place].append(client)
        loads[place] += work[client]
    return [share for share in shares if share]


def shares_by_owner(
    work: Mapping[int, float], owners: Mapping[int, int | None], speeds: Mapping[int, float]
) -> dict[int, list[int]]:
    """Assigns clients to workers, preferably to the worker that keeps the client's row.

    A client stays with its owner unless that would hold up the other workers.  All other clients go to the worker that
    would end first, those with the most work before the rest.

    Args:
        work: the amount of work of each client.
        owners: the worker that keeps a client's row, for clients that have one.
        speeds: the speed of each worker, relative to the others.

    >>> shares_by_owner({0: 4, 1: 4, 2: 1, 3: 1}, {0: 7}, {7: 1.0, 8: 1.0})
    {7: [0, 2], 8: [1, 3]}
    >>> shares_by_owner({0: 4, 1: 4}, {0: 7, 1: 7}, {7: 1.0, 8: 1.0})
    {7: [0], 8: [1]}
    >>> shares_by_owner({0: 2, 1: 2, 2: 2}, {}, {7: 2.0, 8: 1.0})
    {7: [0, 1], 8: [2]}
    """
    best = sum(work.values()) / sum(speeds.values())
    limit = (1 + SLACK) * max(best, max(work.values(), default=0) / max(speeds.values()))
    shares: dict[int, list[int]] = {worker: [] for worker in speeds}
    load = dict.fromkeys(speeds, 0.0)

    def end(worker: int, client: int) -> float:
        return (load[worker] + work[client]) / speeds[worker]

    def assign(worker: int, client: int) -> None:
        shares[worker].append(client)
        load[worker] += work[client]

    leaving = []
    for client in _longest_first(work):
        owner = owners.get(client)
        if owner in load and end(owner, client) <= limit:
            assign(owner, client)
        else:
            leaving.append(client)
    for client in leaving:
        assign(min(load, key=lambda worker: (end(worker, client), worker)), client)
    return {worker: clients for worker, clients in shares.items() if clients}


def measured_speed(speed: float, expected: float, seconds: float) -> float:
    """Returns a worker's speed after a call that took ``seconds`` where ``expected`` were expected.

    >>> measured_speed(1.0, 2.0, 4.0), measured_speed(1.0, 2.0, 0.01)
    (0.75, 1.0)
    """
    if seconds < SHORT:
        return speed
    return min(max(speed * (1 + expected / seconds) / 2, 0.1), 10.0)


def _longest_first(work: Mapping[int, float]) -> list[int]:
    return sorted(work, key=lambda client: (-work[client], client))
