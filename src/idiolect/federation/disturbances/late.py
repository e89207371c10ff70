"""Late uploads: what some clients send arrives rounds later and is merged then."""

from __future__ import annotations

from collections.abc import Sequence

from idiolect.errors import refuse_outside
from idiolect.federation.disturbances.disturbance import Disturbance, drawn_in_round

__all__ = ["late"]


def late(share: float = 0.2, delay: int = 1) -> Disturbance:
    """An upload arrives late with a probability, and is merged as it is with those of the round of its arrival.

    The client keeps its private state at once.  What has not arrived after the last round is dropped, and a round in
    which nothing arrives leaves the server as it is.

    Args:
        share: probability that the upload of a client that trained is late, in each round anew; at least 0, at most 1.
        delay: rounds by which it is late, at least 1.
    """
    refuse_outside("share of late", share, 0, 1)
    refuse_outside("delay of late", delay, 1)

    def delays(round: int, clients: Sequence[int], seed: int) -> dict[int, int]:
        return dict.fromkeys(sorted(drawn_in_round(share, round, clients, seed)), delay)

    return Disturbance(delays=delays)
