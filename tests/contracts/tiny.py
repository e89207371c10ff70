"""The tiny federation of ``idiolect.testing`` as a dataset with a name, and runs on it that tests share."""

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
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting, prepare
from idiolect.methods import method as read_method
from idiolect.testing.tiny_federation import PUBLIC, SIZES, TINY, play, tiny_dataset

__all__ = [
    "TINY",
    "experiment_of",
    "finished_run",
    "make_engine",
    "play",
    "setting_of",
    "tiny_known",
]


def tiny_tokens(length: int, sizes: tuple[int, ...], n_test: int = 30) -> Dataset:
    """Rows of tokens 0..19, those of a class mostly from five of them."""
    images = tiny_dataset((1, 1, length), sizes, n_test)
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
        return tiny_dataset((channels, size, size), options.get("sizes", SIZES))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("idiolect.experiments.setting.load", also_tiny)
        yield


def experiment_of(method: str, **settings: Any) -> Experiment:
    """The tiny experiment with this method, and public data where the server trains on some."""
    if read_method(method).needs_public:
        settings = {"public": PUBLIC, **settings}
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


@lru_cache(maxsize=16)
def finished_run(method: str, engine: str = "loop", **settings: Any) -> Simulation:
    """A whole run, made once; tests that share it must leave it as it is."""
    setting = setting_of(method, **settings)
    return play(setting, make_engine(engine, setting))
