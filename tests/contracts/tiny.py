"""A federation so small that every method runs on it in a fraction of a second, and as awkward as it is small.

Six clients of very different size who miss classes; half of them take part in a round.  With batches of 8 rows one
client trains on 3 rows, one drops a single trailing row (9 rows, batch normalisation), none has only full batches.
The seed selects clients 2, 3, 5, then 1, 2, 4, then 1, 3, 5: most of them twice, client 0 never.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from idiolect.data import Dataset, load
from idiolect.engines import CohortEngine, Engine, EngineChoice, LoopEngine, PoolEngine
from idiolect.experiments import Experiment
from idiolect.experiments.setting import Setting, prepare
from idiolect.experiments.simulated_clients import Simulation
from idiolect.methods import method as read_method

__all__ = [
    "TINY",
    "experiment_of",
    "finished_run",
    "make_engine",
    "play",
    "setting_of",
    "tiny_known",
]

SIZES = (28, 5, 15, 46, 20, 11)  # rows of each client; 60 % of them train
CLASSES = ((0, 1, 2, 3), (0, 2), (1, 3), (0, 1, 3), (2, 3), (0, 1, 2))
N_CLASSES = 4
TINY = Experiment(
    dataset="tiny",
    partition="by_id",
    clients=len(SIZES),
    model="lenet_bn",
    rounds=3,
    participation_rate=0.5,
    local_epochs=1,
    batch_size=8,
    learning_rate=0.05,
    lr_decay=0.9,
    momentum=0.9,
    weight_decay=1e-3,
    weighting="samples",
    evaluate_every=3,
    precision="float64",
    seed=3,
)


def tiny_data(
    shape: tuple[int, int, int] = (1, 16, 16), sizes: tuple[int, ...] = SIZES, n_test: int = 30
) -> Dataset:
    """Noisy patterns, one for each class; client k holds ``sizes[k]`` of them."""
    random = np.random.default_rng(0)
    pattern = random.normal(size=(N_CLASSES, *shape))

    def noisy(labels: np.ndarray) -> np.ndarray:
        return (pattern[labels] + 2 * random.normal(size=(len(labels), *shape))).astype(np.float32)

    held = [random.choice(CLASSES[k % len(CLASSES)], n) for k, n in enumerate(sizes)]
    labels = np.concatenate(held).astype(np.int64)
    test = random.integers(N_CLASSES, size=n_test)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return Dataset(
        "tiny",
        noisy(labels),
        labels,
        noisy(test),
        test,
        N_CLASSES,
        (0.0,) * shape[0],
        (1.0,) * shape[0],
        {},
        owners,
    )


def tiny_tokens(length: int, sizes: tuple[int, ...], n_test: int = 30) -> Dataset:
    """Rows of tokens 0..19, those of a class mostly from five of them."""
    images = tiny_data((1, 1, length), sizes, n_test)
    random = np.random.default_rng(1)

    def read(labels: np.ndarray) -> np.ndarray:
        own = 5 * labels[:, None] + random.integers(5, size=(len(labels), length))
        tokens = np.where(random.random(own.shape) < 0.5, own, random.integers(20, size=own.shape))
        return tokens[:, None, None].astype(np.float32)

    return replace(images, train_x=read(images.train_y), test_x=read(images.test_y))


@contextmanager
def tiny_known() -> Iterator[None]:
    """Lets experiments load the dataset ``tiny``, also as ``tiny(channels=3, size=32, sizes=(12, 10))``.

    ``tiny(tokens=7)`` has rows of 7 tokens.
    """

    def also_tiny(name: str, data_dir: Any = None, **options: Any) -> Dataset:
        if name != "tiny":
            return load(name, data_dir, **options)
        if "tokens" in options:
            return tiny_tokens(options["tokens"], options.get("sizes", SIZES))
        channels, size = options.get("channels", 1), options.get("size", 16)
        return tiny_data((channels, size, size), options.get("sizes", SIZES))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("idiolect.experiments.setting.load", also_tiny)
        yield


def experiment_of(method: str, **settings: Any) -> Experiment:
    """The tiny experiment with this method, and public data where the server trains on some."""
    if read_method(method).needs_public:
        settings = {"public": 10, **settings}
    return replace(TINY, method=method, **settings)


@lru_cache(maxsize=16)
def setting_of(method: str, **settings: Any) -> Setting:
    """A setting holds no state of a run, so that tests share it."""
    return prepare(experiment_of(method, **settings), EngineChoice("loop", "cpu", "as asked"))


def make_engine(name: str, setting: Setting) -> Engine:
    """``loop``, ``cohort``, ``pool``, or with a number: ``cohort 2`` in chunks of 2, ``pool 3`` with 3 workers."""
    kind, _, number = name.partition(" ")
    if kind == "loop":
        return LoopEngine(setting.work)
    if kind == "cohort":
        return CohortEngine(setting.work, int(number or 128))
    assert kind == "pool", f"make_engine does not know {name}"
    return PoolEngine(setting.work, int(number or 2))


def play(setting: Setting, engine: Engine) -> Simulation:
    """All rounds and the stages of the end."""
    simulation = Simulation.start(setting, engine)
    try:
        for _ in range(setting.experiment.rounds):
            simulation.advance()
        simulation.finish()
    finally:
        engine.close()
    return simulation


@lru_cache(maxsize=16)
def finished_run(method: str, engine: str = "loop", **settings: Any) -> Simulation:
    """A whole run, made once; tests that share it must leave it as it is."""
    setting = setting_of(method, **settings)
    return play(setting, make_engine(engine, setting))
