"""Corrupted tests: clients train on clean inputs and are scored on corrupted ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from idiolect.core.seeds import derive
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.federation.disturbances.corruptions import KINDS, corrupted, refuse_unfit
from idiolect.federation.disturbances.disturbance import (
    Disturbance,
    DisturbedData,
    drawn_clients,
    refuse_share,
    with_inputs,
)
from idiolect.federation.federation import Federation

__all__ = ["corrupted_test"]


def corrupted_test(share: float = 1.0, kind: str = "noise", severity: int = 3) -> Disturbance:
    """The test inputs of a share of the clients are corrupted; training and validation data stay clean.

    The server's own test set stays clean too.  ``noise`` fits all inputs: numbers get Gaussian noise, tokens are
    replaced at random; the other kinds need images.

    Args:
        share: of the clients, drawn by the seed of the data; above 0 and at most 1.
        kind: ``noise``, ``blur``, ``contrast`` or ``occlusion``.
        severity: 1 to 5.
    """
    refuse_share("share of corrupted_test", share)
    refuse_unknown_choice("kind of corrupted_test", kind, KINDS)
    refuse_outside("severity of corrupted_test", severity, 1, 5)

    def data(federation: Federation, seed: int, rounds: int) -> DisturbedData:
        refuse_unfit(federation, kind, "corrupted_test")
        clients = drawn_clients(share, federation.population, seed)

        def change(x: NDArray[Any], client: int, split: str) -> NDArray[Any]:
            random = np.random.default_rng(derive(seed, "inputs", client))
            return corrupted(federation, x, kind, severity, random)

        return DisturbedData(with_inputs(federation, clients, ("test",), change), clients)

    return Disturbance(data=data)
