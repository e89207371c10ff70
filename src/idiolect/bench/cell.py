"""A cell of the grid: one workload, at one cohort size, in one precision, on one device.

Workload W, and the same numbers for the other networks: 20 of 100 clients a round, 400 random images each, one
epoch in batches of 64 (six full ones and one of 16), SGD with learning rate 0.03 and momentum 0.9, uniform
average, no evaluation.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from idiolect import models
from idiolect.core import derive
from idiolect.errors import refuse_outside, refuse_unknown_choice, unknown_name
from idiolect.experiments.spec import PRECISIONS

__all__ = ["SIZES", "WORKLOADS", "Cell", "workloads"]

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
    """The workloads whose network the zoo has."""
    return [name for name, (model, _) in WORKLOADS.items() if model in models.names()]


@dataclass(frozen=True)
class Cell:
    """Args:
    method: a name among the methods that the bench carries a plain loop of.
    clients: of them train in every round.
    population: clients that there are.
    samples: training images of each client; of ``lognormal`` sizes the distribution's mean.
    sizes: ``equal``, or ``lognormal``: quantiles of samples exp(z - 1/2), z standard normal, at least 2.  Drawn sizes
        would be more or less ragged by luck.
    seed: of images, cohorts and batches, and of whose quantile is which.
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
        """Training images of every client."""
        if self.sizes == "equal":
            return [self.samples] * self.population
        ranks = np.random.default_rng(derive(self.seed, "sizes")).permutation(self.population)
        quantiles = ndtri((ranks + 0.5) / self.population)
        return [max(round(self.samples * size), 2) for size in np.exp(quantiles - 0.5)]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "model": self.model}
