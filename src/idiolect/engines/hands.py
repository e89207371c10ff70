"""How the clients of a call are dealt to workers: in many small hands, or in one for each."""

from __future__ import annotations

__all__ = ["balanced_hands", "hands_of"]


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
