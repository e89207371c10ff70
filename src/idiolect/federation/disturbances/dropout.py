"""Dropout: selected clients fail in the middle of a round."""

from __future__ import annotations

from functools import partial

from idiolect.errors import refuse_outside
from idiolect.federation.disturbances.disturbance import Disturbance, drawn_in_round

__all__ = ["dropout"]


def dropout(rate: float = 0.1) -> Disturbance:
    """A selected client fails with a probability: it downloads the model, and its training is lost.

    It uploads nothing, and its private state stays as it was before the round.  A round in which all fail leaves the
    server as it is.

    Args:
        rate: probability that a selected client fails, in each round anew; at least 0 and at most 1.
    """
    refuse_outside("rate of dropout", rate, 0, 1)
    return Disturbance(lost=partial(drawn_in_round, rate))
