"""Splits the clients of a call among workers so that all workers end at about the same time."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["balanced_hands", "hands_of", "measured", "share_out"]


def hands_of(work: dict[int, int], most: int) -> list[list[int]]:
    """Clients in at most ``most`` hands of equal size, those with most work first.

    >>> hands_of({0: 5, 1: 3, 2: 7, 3: 1, 4: 3}, 3)
    [[2, 0], [1, 4], [3]]
    """
    order = _longest_first(work)
    size = -(-len(order) // most)
    return [order[start : start + size] for start in range(0, len(order), size)]


def balanced_hands(work: dict[int, int], count: int) -> list[list[int]]:
    """Clients in ``count`` hands of about equal work.

    None has more than its share of clients: what runs before and after the steps is traced for each number of them.

    >>> balanced_hands({0: 5, 1: 3, 2: 7, 3: 1, 4: 3}, 2)
    [[2, 4], [0, 1, 3]]
    """
    share = -(-len(work) // count)
    hands: list[list[int]] = [[] for _ in range(min(count, len(work)))]
    loads = [0] * len(hands)
    for client in _longest_first(work):
        free = (place for place, hand in enumerate(hands) if len(hand) < share)
        place = min(free, key=lambda place: (loads[place], len(hands[place])))
        hands[place].append(client)
        loads[place] += work[client]
    return [hand for hand in hands if hand]


def _longest_first(work: dict[int, int]) -> list[int]:
    return sorted(work, key=lambda client: (-work[client], client))


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
