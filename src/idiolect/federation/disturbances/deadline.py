"""Deadline: clients differ in speed, and those that are too slow are cut off or waited for.

t_k = n_k / (v exp(s z_k + j z_kt))        n_k local steps up to the upload;   z_k, z_kt standard normal
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from idiolect.core.seeds import derive
from idiolect.errors import refuse_outside
from idiolect.federation.disturbances.disturbance import AnswerTimes, Disturbance

__all__ = ["deadline"]

MOST = 40.0  # of a deviation, so that no speed is beyond the largest float: exp(709)


def deadline(
    seconds: float | None = 10.0, speed: float = 1.0, spread: float = 0.5, jitter: float = 0.0
) -> Disturbance:
    """Clients need simulated time for their local steps; one that is not done by the deadline is cut off.

    What a client that is cut off has computed is lost, as with dropout: it has downloaded the model, and its private
    state stays as it was.  The simulated seconds of every round are recorded.  Sending takes no time, and neither do
    measurements, the server, and stages after the upload.

    Args:
        seconds: from the start of a round, above 0; None waits for everybody, and then the run is the plain one.
        speed: v > 0, local steps in a simulated second of a client in the middle.
        spread: s, at least 0 and at most 40, deviation of the logarithm of the speed between clients, drawn once by the
            seed of the run.
        jitter: j, at least 0 and at most 40, deviation of the logarithm of a client's speed from round to round.
    """
    if seconds is not None:
        refuse_outside("seconds of deadline", seconds, 1e-9)
    refuse_outside("speed of deadline", speed, 1e-9)
    refuse_outside("spread of deadline", spread, 0, MOST)
    refuse_outside("jitter of deadline", jitter, 0, MOST)

    def answers(round: int, steps: Mapping[int, int], seed: int) -> AnswerTimes:
        def time(client: int) -> float:
            own = np.random.default_rng(derive(seed, "speed", client)).standard_normal()
            now = np.random.default_rng(derive(seed, "round", round, client)).standard_normal()
            return steps[client] / (speed * math.exp(spread * own + jitter * now))

        return AnswerTimes({client: time(client) for client in steps}, seconds)

    return Disturbance(answers=answers)
