"""Label flip: hostile clients train on labels that are wrong on purpose.

y' = K - 1 - y        Fang, Cao, Jia, Gong, USENIX Security 2020, https://arxiv.org/abs/1911.11815
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from idiolect.data import CLASS_TASKS
from idiolect.federation.disturbances.disturbance import (
    Disturbance,
    DisturbedData,
    drawn_clients,
    refuse_share,
    with_targets,
)
from idiolect.federation.federation import Federation

__all__ = ["label_flip"]


def label_flip(share: float = 0.2) -> Disturbance:
    """Hostile clients train and validate on the classes in reverse order; test labels stay clean.

    All these clients are wrong in the same way, unlike those of label noise; of an odd number of classes the middle one
    stays.  Labels of several (multilabel) are turned over, and a regression's targets, which are standardised, change
    their sign.

    Args:
        share: of the clients that are hostile, drawn by the seed of the data; above 0 and at most 1.
    """
    refuse_share("share of label_flip", share)

    def data(federation: Federation, seed: int, rounds: int) -> DisturbedData:
        clients = drawn_clients(share, federation.population, seed)

        def flipped(y: NDArray[Any], client: int, split: str) -> NDArray[Any]:
            if federation.task in CLASS_TASKS:
                return federation.n_classes - 1 - y
            return 1 - y if federation.task == "multilabel" else -y

        return DisturbedData(with_targets(federation, clients, ("train", "valid"), flipped), clients)

    return Disturbance(data=data)
