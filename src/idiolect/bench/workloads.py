"""The workloads that the bench times: networks, cells of the grid, and the run on random images that each stands for.

Workload W: 20 of 100 clients train in each round, each has 400 random images and makes one epoch in batches of 64 (six
full batches and one of 16) by SGD with learning rate 0.03 and momentum 0.9; the average is uniform and nothing is
evaluated.  The other workloads use the same numbers with another network.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from idiolect import models
from idiolect.core import derive
from idiolect.data import Dataset
from idiolect.engines import EngineChoice
from idiolect.errors import refuse_outside, refuse_unknown_choice, unknown_name
from idiolect.experiments import Experiment, Setting, prepare
from idiolect.experiments.spec import PRECISIONS
from idiolect.methods import method as read_method

__all__ = ["ENDLESS", "SIZES", "WORKLOADS", "BenchCell", "bench_setting", "images_of", "workloads"]

LEARNING_RATE, MOMENTUM, N_CLASSES = 0.03, 0.9, 10
SIZES = ("equal", "lognormal")
_COLOUR, _DIGIT, _SMALL_DIGIT = (3, 32, 32), (1, 32, 32), (1, 28, 28)
WORKLOADS = {
    "w": ("tfcnn_tf", _COLOUR),
    "lenet": ("lenet_map", _SMALL_DIGIT),
    "dnn": ("persfl_dnn", _SMALL_DIGIT),
    "mlp": ("mlpnet", _DIGIT),
    "vgg8": ("vgg8", _COLOUR),
    "vgg8_bn": ("vgg8_bn", _COLOUR),
    "superfed_cnn": ("superfed_cnn", _COLOUR),
    "resnet20": ("resnet20", _COLOUR),
}  # name -> (network, shape of an image)


def workloads() -> list[str]:
    """Returns the names of the workloads whose network is in the zoo."""
    return [name for name, (model, _) in WORKLOADS.items() if model in models.names()]


@dataclass(frozen=True)
class BenchCell:
    """One cell of the grid: a workload at one cohort size, in one precision, on one device.

    Args:
        method: one of the methods that have a plain loop.
        clients: how many clients train in every round.
        population: how many clients exist.
        samples: training images of each client; with ``lognormal`` sizes their mean.
        sizes: ``equal``, or ``lognormal``: quantiles of samples * exp(z - 1/2) with z standard normal, at least 2.
            They are quantiles because drawn sizes would vary in raggedness from seed to seed.
        seed: decides the images, the cohorts, the batches, and which client gets which quantile.
    """

    workload: str = "w"
    method: str = "fedavg"
    clients: int = 20
    population: int = 100
    samples: int = 400
    batch_size: int = 64
    sizes: str = "equal"
    precision: str = "float32"
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.workload not in workloads():
            raise unknown_name("workload", self.workload, workloads())
        refuse_unknown_choice("sizes", self.sizes, SIZES)
        refuse_unknown_choice("precision", self.precision, PRECISIONS)
        for name, low in (("clients", 1), ("samples", 2), ("batch_size", 2)):
            refuse_outside(name, getattr(self, name), low)
        refuse_outside("clients", self.clients, 1, self.population)

    @property
    def model(self) -> str:
        return WORKLOADS[self.workload][0]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return WORKLOADS[self.workload][1]

    def train_sizes(self) -> list[int]:
        """Returns the number of training images of every client."""
        if self.sizes == "equal":
            return [self.samples] * self.population
        ranks = np.random.default_rng(derive(self.seed, "sizes")).permutation(self.population)
        quantiles = ndtri((ranks + 0.5) / self.population)
        return [max(round(self.samples * size), 2) for size in np.exp(quantiles - 0.5)]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "model": self.model}


ENDLESS = (
    1_000  # rounds of the run; the timed rounds are its first ones, and only the last would be evaluated
)
PUBLIC = 500  # images of the server at most, for methods that train on some
TEST, VALID = 1e-9, 0.2  # shares held out: one image; a fifth for methods that choose on validation data


def bench_setting(cell: BenchCell, method: str, where: EngineChoice | None = None) -> Setting:
    """Prepares the run that a cell stands for, as every run is prepared.

    Args:
        method: the text of the method, with the options that its plain loop implements.
        where: the engine that will run it; the loop engine by default.
    """
    chosen = read_method(method)
    valid = VALID if chosen.uses_validation else 0.0
    public = min(PUBLIC, sum(cell.train_sizes())) if chosen.needs_public else 0
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
        public=public,
        evaluate_every=ENDLESS,
        precision=cell.precision,
        seed=cell.seed,
    )
    where = where or EngineChoice("loop", cell.device, "as asked")
    return prepare(experiment, where, dataset=images_of(cell, valid, public))


def images_of(cell: BenchCell, valid: float, public: int = 0) -> Dataset:
    """Draws standard normal images with uniform labels; the images of one client are contiguous.

    Args:
        public: how many images of the server methods may train on; it has one more.
    """
    owner = np.repeat(np.arange(cell.population), [_with_held_out(n, valid) for n in cell.train_sizes()])
    random = np.random.default_rng(derive(cell.seed, "images"))
    x = random.standard_normal((len(owner), *cell.image_shape), dtype=np.float32)
    y = random.integers(N_CLASSES, size=len(owner))
    channels = cell.image_shape[0]
    return Dataset(
        "random images",
        x,
        y,
        x[: 1 + public],
        y[: 1 + public],
        N_CLASSES,
        mean=(0.0,) * channels,
        std=(1.0,) * channels,
        manifest={"source": "generated", "licence": "none needed", "sha256": {}},
        train_ids=owner,
    )


def _with_held_out(train: int, valid: float) -> int:
    """Returns how many images a client needs so that ``train`` remain after the held-out shares.

    >>> _with_held_out(400, 0.0), _with_held_out(400, 0.2)
    (401, 501)
    """
    total = train + 1
    while total - int(valid * total + 1e-9) - 1 < train:
        total += 1
    return total
