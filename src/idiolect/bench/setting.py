"""The setting of a cell: random images placed on a device, and the method on them, as a run has it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from idiolect.bench.cell import LEARNING_RATE, MOMENTUM, N_CLASSES, Cell
from idiolect.core import derive
from idiolect.engines import Where, Workload, initialiser, make_task
from idiolect.experiments import Experiment, Setting, prepare
from idiolect.experiments.setting import DTYPES
from idiolect.federation import Federation
from idiolect.federation.splits import ClientRows
from idiolect.methods import method as read_method
from idiolect.models import build

__all__ = ["federation_of", "setting_of"]

ENDLESS = 1_000_000  # rounds of the run that the timed ones are the first of; none of them is evaluated
VALID_SHARE = 0.25  # images held out beside the training ones, where a method chooses on validation data
_STAND_IN = Experiment(
    dataset="synthetic(n_clients=2, samples_per_client=10, n_features=4)",
    partition="by_id",
    clients=2,
    model="mlpnet(hidden=2)",
)  # prepared for everything that a cell does not put in its own place


def federation_of(cell: Cell, validated: bool) -> Federation:
    """Standard normal images with uniform labels; each client's rows lie side by side."""
    train = cell.train_sizes()
    valid = [max(int(VALID_SHARE * n), 1) if validated else 0 for n in train]
    starts = np.concatenate([[0], np.cumsum(np.add(train, valid))])
    random = np.random.default_rng(derive(cell.seed, "images"))
    x = random.standard_normal((starts[-1], *cell.image_shape), dtype=np.float32)
    y = random.integers(N_CLASSES, size=starts[-1])
    clients = tuple(
        ClientRows(np.arange(a, a + n), np.arange(a + n, a + n + held), np.arange(0))
        for a, n, held in zip(starts, train, valid, strict=False)
    )
    return Federation(x, y, x[:0], y[:0], N_CLASSES, clients, np.arange(0))


def setting_of(cell: Cell, method: str) -> Setting:
    """Args:
    method: the text of the method, with the options that the cell's plain loop knows.
    """
    experiment = replace(
        _STAND_IN,
        method=method,
        clients=cell.population,
        model=cell.model,
        rounds=ENDLESS,
        participation_rate=cell.clients / cell.population,
        local_epochs=1,
        batch_size=cell.batch_size,
        learning_rate=LEARNING_RATE,
        momentum=MOMENTUM,
        evaluate_every=ENDLESS,
        precision=cell.precision,
        seed=cell.seed,
    )
    chosen = read_method(method)
    federation = federation_of(cell, chosen.needs_validation)
    net = build(cell.model, cell.image_shape, N_CLASSES, seed=cell.seed)
    task = make_task(net)
    chosen.check(task.structure, experiment.scene)
    work = Workload.place(
        federation,
        seed=cell.seed,
        drop_single=net.has_batchnorm,
        weighting=experiment.weighting,
        dtype=DTYPES[cell.precision],
        device=cell.device,
    )
    return replace(
        prepare(_STAND_IN, Where("loop", "cpu", "stands in")),
        experiment=experiment,
        method=chosen,
        federation=federation,
        work=work,
        task=task,
        n_parameters=sum(p.numel() for p in net.parameters()),
        initial=initialiser(cell.model, cell.image_shape, N_CLASSES, "default", cell.seed, work.x),
    )
