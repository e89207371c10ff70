"""Label noise: some clients train on wrong labels.

    y' = y  with probability 1 - rate,  another class with probability rate

``uniform`` draws the other class uniformly (symmetric noise); ``pair`` takes the next one, y + 1 modulo K (pair flips):
Han et al., "Co-teaching", NeurIPS 2018, https://arxiv.org/abs/1804.06872, figure 2.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from idiolect.core.seeds import derive
from idiolect.data import CLASS_TASKS
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.federation.disturbances.disturbance import (
    Disturbance,
    DisturbedData,
    drawn_clients,
    refuse_share,
    with_targets,
)
from idiolect.federation.federation import Federation

__all__ = ["label_noise"]

KINDS = ("uniform", "pair")


def label_noise(share: float = 0.3, rate: float = 0.5, kind: str = "uniform") -> Disturbance:
    """A share of the clients trains and validates on wrong labels; test labels stay clean.

    Labels of several (multilabel) are each turned over with probability ``rate``; a regression's targets are
    each exchanged for that of another row of the client and split.  Both ignore ``kind``.

    Args:
        share: of the clients, drawn by the seed of the data; above 0 and at most 1.
        rate: probability that a label is replaced, at least 0 and at most 1.
        kind: ``uniform`` draws another class, ``pair`` takes the next one.
    """
    refuse_share("share of label_noise", share)
    refuse_outside("rate of label_noise", rate, 0, 1)
    refuse_unknown_choice("kind of label_noise", kind, KINDS)

    def data(federation: Federation, seed: int, rounds: int) -> DisturbedData:
        clients = drawn_clients(share, federation.population, seed)
        change = partial(_noisy, federation, rate, kind, seed)
        return DisturbedData(with_targets(federation, clients, ("train", "valid"), change), clients)

    return Disturbance(data=data)


def _noisy(
    federation: Federation, rate: float, kind: str, seed: int, y: NDArray[Any], client: int, split: str
) -> NDArray[Any]:
    """Returns the targets of one split of one client with noise."""
    random = np.random.default_rng(derive(seed, "labels", client, split))
    hit = random.random(y.shape if federation.task == "multilabel" else len(y)) < rate
    if federation.task in CLASS_TASKS:
        n = federation.n_classes
        steps = random.integers(1, n, len(y)) if kind == "uniform" else 1
        return np.where(hit, (y + steps) % n, y)
    if federation.task == "multilabel":
        return np.where(hit, 1 - y, y)
    other = (np.arange(len(y)) + random.integers(1, max(len(y), 2), len(y))) % len(y)
    return np.where(hit[:, None], y[other], y)
