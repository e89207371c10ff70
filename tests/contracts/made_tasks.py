"""Small data for tasks of every kind: the targets depend on the row, and a little on the client."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from idiolect.data import Dataset
from idiolect.engines import EngineChoice
from idiolect.experiments import Experiment
from idiolect.experiments.setting import Setting, prepare

__all__ = ["SIZES", "made", "setting_of"]

SIZES = (14, 5, 9, 22)
N_TEST = 12
SMALL = Experiment(
    dataset="made",
    partition="by_id",
    clients=len(SIZES),
    model="mlpnet(hidden=8)",
    rounds=1,
    participation_rate=1.0,
    local_epochs=1,
    batch_size=4,
    learning_rate=0.05,
    evaluate_every=1,
    precision="float64",
)
OUTPUTS = {"regression": 2, "multilabel": 3, "binary": 2, "classification": 4, "next_token": 4}


@lru_cache
def made(task: str, sizes: tuple[int, ...] = SIZES) -> Dataset:
    """Rows of six numbers; the targets of a regression lie around 200 with a deviation of about 100."""
    random = np.random.default_rng(1)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    owners = np.append(owners, np.arange(N_TEST) % len(sizes))
    x = random.normal(size=(len(owners), 1, 1, 6)).astype(np.float32)
    own = 0.3 * random.normal(size=(len(sizes), 4))[owners]
    signal = x.reshape(len(x), -1) @ random.normal(size=(6, 4)) + own
    if task == "regression":
        y = (200 + 50 * signal[:, :2] + random.normal(size=(len(x), 2))).astype(np.float32)
    elif task == "multilabel":
        y = (signal[:, :3] > 0.5).astype(np.float32)
    else:
        y = np.argmax(signal[:, : OUTPUTS[task]], 1)
    n = sum(sizes)
    parts = (x[:n], y[:n], x[n:], y[n:])
    return Dataset("made", *parts, OUTPUTS[task], (0.0,), (1.0,), {}, owners[:n], task=task)


def setting_of(task: str, method: str, sizes: tuple[int, ...] = SIZES, **settings: Any) -> Setting:
    asked = replace(SMALL, method=method, clients=len(sizes), **settings)
    return prepare(asked, EngineChoice("loop", "cpu", "as asked"), dataset=made(task, sizes))
