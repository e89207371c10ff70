"""The small version of an experiment that ``--quick`` runs: the embedded data, few clients and few rounds.

It keeps the kind of partition, local training, splits and method; its numbers cannot be compared with a paper's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from idiolect.experiments.spec import Experiment
from idiolect.option_parsing import parse_call, split_outside_brackets, write_call
from idiolect.reproduction.papers import MetricReading

__all__ = ["QUICK_NOTE", "quick_experiment", "quick_model", "quick_reading"]

QUICK_NOTE = "quick: embedded data, few clients, few rounds; not to be compared with the paper"
DATASET = "fashion-mnist-12k"
CLASSES = {"cifar100": 100}
ROUNDS, CLIENTS, RATE, EPOCHS, PUBLIC = 4, 10, 0.4, 2, 100
SMALL_MODELS = {"mlpnet", "lenet5", "lenet_map", "lenet_2d", "persfl_dnn", "persfl_cnn", "superfed_cnn"}
NORMALISED_MODELS = {"vgg8_bn", "resnet20", "resnet56"}
SMALL_GRID = {"lambdas": [0.0, 0.5], "temperatures": [1.0, 5.0]}
SMALL_WORK = {
    "persfl": {"epochs": 1},
    "persfl_gd": {"epochs": 1},
    "fedavg_lu": {"epochs": 1},
    "fedrep": {"head_epochs": 1},
    "feddf": {"steps": 20},
}


def quick_experiment(experiment: Experiment) -> Experiment:
    """Returns the small version of an experiment.

    >>> quick_experiment(Experiment(dataset="cifar100", partition="label_k(k=20)", model="vgg8_bn")).partition
    'label_k(k=2)'
    """
    demo = experiment.partition.startswith("two_client_demo")
    return replace(
        experiment,
        method=_method(experiment.method),
        dataset=DATASET,
        partition=_partition(experiment),
        clients=2 if demo else min(experiment.clients or CLIENTS, CLIENTS),
        model=quick_model(experiment.model),
        rounds=min(experiment.rounds, ROUNDS),
        participation_rate=experiment.participation_rate if experiment.participation_rate == 1 else RATE,
        local_epochs=min(experiment.local_epochs, EPOCHS),
        public=min(experiment.public, PUBLIC),
        evaluate_every=1,
    )


def quick_reading(reading: MetricReading) -> MetricReading:
    """Returns the reading with a window that lies within the few rounds of a quick experiment."""
    return replace(reading, rounds="round 1" if reading.rounds.startswith("around") else "last")


def _partition(experiment: Experiment) -> str:
    """Returns the partition, as far as the embedded data allow it."""
    name, options = parse_call(experiment.partition)
    if name in ("natural", "semantic_emnist", "semantic_tiny"):
        return "dirichlet_client(alpha=0.3)"
    if name == "lognormal_2class":
        return "lognormal_2class(extra_low=30, extra_high=60)"
    if name == "label_k":
        ratio = 10 / CLASSES.get(experiment.dataset, 10)
        return write_call(name, options | {"k": max(1, round(ratio * options["k"]))})
    return experiment.partition


def quick_model(model: str) -> str:
    """Returns the model, or LeNet in place of a large one."""
    name, options = parse_call(model)
    if name == "linear_base":
        return write_call(name, {**options, "side": 1} if options.get("units", 1) > 1 else options)
    if name in SMALL_MODELS:
        return model
    return "lenet_bn" if name in NORMALISED_MODELS else "lenet5"


def _method(text: str) -> str:
    """Returns the method with less local work and smaller grids of its own."""
    first, *others = split_outside_brackets(text, "+")
    name, options = parse_call(first)
    small: dict[str, Any] = SMALL_GRID if name.startswith("persfl") else {}
    return " + ".join([write_call(name, small | options | SMALL_WORK.get(name, {})), *others])
