"""The setting of a cell: a run on random images, prepared as every run is."""

from __future__ import annotations

import numpy as np

from idiolect.bench.cell import LEARNING_RATE, MOMENTUM, N_CLASSES, Cell
from idiolect.core import derive
from idiolect.data import Dataset
from idiolect.engines import EngineChoice
from idiolect.experiments import Experiment, Setting, prepare
from idiolect.methods import method as read_method

__all__ = ["ENDLESS", "images_of", "setting_of"]

ENDLESS = 1_000  # rounds of the run that the timed ones are the first of; only the last would be evaluated
TEST, VALID = 1e-9, 0.2  # shares held out: one image, and a fifth where a method chooses on validation data


def setting_of(cell: Cell, method: str, where: EngineChoice | None = None) -> Setting:
    """Args:
    method: the text of the method, with the options that the cell's plain loop knows.
    where: the engine that the setting is for.
    """
    valid = VALID if read_method(method).uses_validation else 0.0
    experiment = Experiment(
        method=method,
        dataset="random images",
        partition="by_id",
        clients=cell.population,
        model=cell.model,
        rounds=ENDLESS,
        participation_rate=cell.clients / cell.population,
        local_epochs=1,
        batch_size=cell.batch_size,
        learning_rate=LEARNING_RATE,
        momentum=MOMENTUM,
        weighting="uniform",
        valid=valid,
        test=TEST,
        evaluate_every=ENDLESS,
        precision=cell.precision,
        seed=cell.seed,
    )
    where = where or EngineChoice("loop", cell.device, "as asked")
    return prepare(experiment, where, dataset=images_of(cell, valid))


def images_of(cell: Cell, valid: float) -> Dataset:
    """Standard normal images with uniform labels; each client's lie side by side."""
    owner = np.repeat(np.arange(cell.population), [_with_held_out(n, valid) for n in cell.train_sizes()])
    random = np.random.default_rng(derive(cell.seed, "images"))
    x = random.standard_normal((len(owner), *cell.image_shape), dtype=np.float32)
    y = random.integers(N_CLASSES, size=len(owner))
    channels = cell.image_shape[0]
    return Dataset(
        "random images",
        x,
        y,
        x[:1],
        y[:1],
        N_CLASSES,
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
        manifest={"source": "generated", "licence": "none needed", "sha256": {}},
        train_ids=owner,
    )


def _with_held_out(train: int, valid: float) -> int:
    """Images of a client of which ``train`` remain for training beside the shares held out.

    >>> _with_held_out(400, 0.0), _with_held_out(400, 0.2)
    (401, 501)
    """
    total = train + 1
    while total - int(valid * total + 1e-9) - 1 < train:
        total += 1
    return total
