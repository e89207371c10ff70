"""Everything an experiment runs on, made from its spec; what cannot work is refused here, before any training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from idiolect.calls import parse_call
from idiolect.core import Clock, Initial, Method, Program, Task, Tree, init_private, init_server
from idiolect.data import Dataset, load
from idiolect.engines import Where, Workload, dry_round, initialiser, make_task
from idiolect.engines.packing import SINGLE
from idiolect.engines.precision import PRECISIONS
from idiolect.errors import UserError
from idiolect.experiments.spec import Experiment
from idiolect.federation import Federation, cohort_size, federate
from idiolect.methods import method
from idiolect.models import Net, build
from idiolect.partition import partition

__all__ = ["Setting", "prepare"]


@dataclass(frozen=True)
class Setting:
    experiment: Experiment
    method: Method
    federation: Federation
    work: Workload
    task: Task
    partition_report: dict[str, Any]
    dataset_manifest: dict[str, Any]
    n_parameters: int
    initial: Callable[[int], Initial]

    def program(self, round: int) -> Program:
        """The method at a round counted from 0; one past the last is the end of the run."""
        experiment, population = self.experiment, self.federation.population
        rate = experiment.participation_rate
        learning_rate = experiment.learning_rate_at(min(round, experiment.rounds - 1))
        size = cohort_size(rate, population)
        clock = Clock(round, experiment.rounds, rate, size, population, learning_rate)
        return Program(self.method, self.task, experiment.scene, clock, SINGLE.differentiate)

    def first_server(self) -> Tree:
        return init_server(self.method, self.initial(0), self.task.structure)

    def first_private(self, client: int) -> Tree:
        return init_private(self.method, self.initial(client), self.task.structure, self.experiment.buffers)


def prepare(experiment: Experiment, where: Where, data_dir: str | Path | None = None) -> Setting:
    """Loads, partitions, splits, builds and checks."""
    chosen = method(experiment.method)
    dataset = _dataset(experiment.dataset, str(data_dir) if data_dir else None)
    parted = partition(
        experiment.partition, dataset.train_y, experiment.clients, experiment.seed, ids=dataset.train_ids
    )
    federation = federate(
        dataset,
        parted,
        valid=experiment.valid,
        test=experiment.test,
        seed=experiment.seed,
        public=experiment.public,
        public_in_test=experiment.public_in_test,
    )
    image_shape = dataset.shape
    net = build(experiment.model, image_shape, dataset.n_classes, experiment.initialisation, experiment.seed)
    precision = PRECISIONS[experiment.precision]
    task = make_task(net, compute=precision.compute if precision.compute != precision.storage else None)
    chosen.check(task.structure, experiment.scene)
    _refuse_unusable(experiment, chosen, federation, net)
    work = Workload.place(
        federation,
        seed=experiment.seed,
        drop_single=net.has_batchnorm,
        weighting=experiment.weighting,
        precision=precision,
        device=where.device,
    )
    n_parameters = sum(p.numel() for p in net.parameters())
    report = parted.report(dataset.train_y)
    scheme, seed = experiment.initialisation, experiment.seed
    initial = initialiser(experiment.model, image_shape, dataset.n_classes, scheme, seed, work.like)
    source = dict(dataset.manifest)
    setting = Setting(experiment, chosen, federation, work, task, report, source, n_parameters, initial)
    dry_round(setting.program(experiment.rounds - 1), initial(0), image_shape, dataset.n_classes)
    return setting


@lru_cache(maxsize=1)
def _dataset(text: str, data_dir: str | None) -> Dataset:
    """A dataset by name, or by name with options: ``synthetic(skew=0.5)``; the last one is kept at hand."""
    name, bracket, rest = text.partition("(")
    _, options = parse_call("dataset" + bracket + rest)
    return load(name.strip(), data_dir, **options)


def _refuse_unusable(experiment: Experiment, chosen: Method, federation: Federation, net: Net) -> None:
    """Clients that the method or the network cannot serve, by name."""
    if chosen.needs_public and experiment.public < 1:
        raise UserError(f"{chosen.name} trains on public data on the server; set public, for example to 500")
    for client, rows in enumerate(federation.clients):
        if chosen.needs_validation and len(rows.valid) == 0:
            raise UserError(
                f"{chosen.name} chooses on validation data and client {client} holds none; set valid above 0"
            )
        if net.has_batchnorm and (len(rows.train) < 2 or experiment.batch_size < 2):
            raise UserError(
                f"client {client} would train on batches of one sample, which batch normalisation cannot; "
                "use fewer clients, a larger batch or a network without it"
            )
