"""A federation so small that every method runs on it in a fraction of a second, and as awkward as it is small.

Six clients of very different size who miss classes; half of them take part in a round.  With batches of 8 rows one
client trains on 3 rows, one drops a single trailing row (9 rows, batch normalisation), none has only full batches.
The seed selects clients 2, 3, 5, then 1, 2, 4, then 1, 3, 5: most of them twice, client 0 never.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from idiolect.core import Method, Part, chain
from idiolect.data import Dataset
from idiolect.engines import Engine, LoopEngine, place
from idiolect.experiments import Experiment
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.setting import Setting, prepare
from idiolect.methods import method as read_method
from idiolect.parts import average

__all__ = ["SIZES", "TINY", "as_method", "play", "tiny_dataset", "tiny_run", "tiny_setting"]

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
PUBLIC = 10  # rows of the server, for methods that train on some


def tiny_dataset(
    shape: tuple[int, int, int] = (1, 16, 16),
    sizes: tuple[int, ...] = SIZES,
    n_test: int = 30,
    task: str = "classification",
) -> Dataset:
    """Returns noisy patterns, one for each of four classes; client k holds ``sizes[k]`` of them.

    Args:
        task: ``classification``; with ``multilabel`` a row has its class and at random others as its labels, with
            ``regression`` two numbers around those of its class.

    >>> tiny_dataset().train_x.shape
    (125, 1, 16, 16)
    """
    random = np.random.default_rng(0)
    pattern = random.normal(size=(N_CLASSES, *shape))

    def noisy(labels: NDArray[np.int64]) -> NDArray[np.float32]:
        return (pattern[labels] + 2 * random.normal(size=(len(labels), *shape))).astype(np.float32)

    held = [random.choice(CLASSES[k % len(CLASSES)], n) for k, n in enumerate(sizes)]
    labels = np.concatenate(held).astype(np.int64)
    test = random.integers(N_CLASSES, size=n_test)
    train_x, test_x = noisy(labels), noisy(test)
    targets = TARGETS[task]
    return Dataset(
        name="tiny",
        train_x=train_x,
        train_y=targets(labels, random),
        test_x=test_x,
        test_y=targets(test, random),
        n_classes=2 if task == "regression" else N_CLASSES,
        mean=(0.0,) * shape[0],
        std=(1.0,) * shape[0],
        manifest={},
        train_ids=np.repeat(np.arange(len(sizes)), sizes),
        task=task,
    )


def _labels_of(classes: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.float32]:
    own = np.eye(N_CLASSES, dtype=bool)[classes]
    return (own | (random.random(own.shape) < 0.2)).astype(np.float32)


def _numbers_of(classes: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.float32]:
    centre = 10.0 * np.stack([classes, -classes], 1)
    return (centre + random.normal(size=centre.shape)).astype(np.float32)


TARGETS: dict[str, Callable[[NDArray[np.int64], np.random.Generator], NDArray[Any]]] = {
    "classification": lambda classes, random: classes,
    "multilabel": _labels_of,
    "regression": _numbers_of,
}


def as_method(method: str | Method | Part) -> Method:
    """Returns a method as it is, the method that a text names, or a part above an average.

    >>> as_method(Part("mine")).name
    'average + mine'
    """
    if isinstance(method, str):
        return read_method(method)
    if isinstance(method, Part):
        return chain(method) if "server update" in method.roles else chain(average(), method)
    return method


def tiny_setting(
    method: str | Method | Part = "fedavg", dataset: Dataset | None = None, **settings: Any
) -> Setting:
    """Returns all that a tiny experiment with this method runs on; the method itself is not tried yet.

    Args:
        dataset: replaces ``tiny_dataset()``.
        settings: fields of ``Experiment`` that differ from ``TINY``.
    """
    chosen = as_method(method)
    if chosen.needs_public:
        settings = {"public": PUBLIC, **settings}
    plain = _plain_setting(replace(TINY, **settings), dataset)
    chosen.check(plain.task.structure, plain.experiment.scene)
    named = method if isinstance(method, str) else plain.experiment.method
    return replace(plain, method=chosen, experiment=replace(plain.experiment, method=named))


@lru_cache(maxsize=4)
def _plain_setting(experiment: Experiment, dataset: Dataset | None) -> Setting:
    """Returns the setting of FedAvg, which holds no state of a run and can be shared."""
    return prepare(experiment, place("loop", "cpu"), dataset=dataset or tiny_dataset())


def play(setting: Setting, engine: Engine) -> Simulation:
    """Runs all rounds and the stages of the end, and closes the engine."""
    simulation = Simulation.start(setting, engine)
    try:
        for _ in range(setting.experiment.rounds):
            simulation.advance()
        simulation.finish()
    finally:
        engine.close()
    return simulation


def tiny_run(method: str | Method | Part = "fedavg", **settings: Any) -> Simulation:
    """Runs a method on the tiny federation, one client after the other, and returns the finished run.

    Args:
        settings: fields of ``Experiment`` that differ from ``TINY``.

    >>> tiny_run("fedper", rounds=1, model="mlpnet(hidden=8)").round
    1
    """
    setting = tiny_setting(method, **settings)
    return play(setting, LoopEngine(setting.work))
