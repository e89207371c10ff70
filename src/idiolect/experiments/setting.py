"""The setting of an experiment: data, clients, method and network; what cannot work is refused before training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from idiolect.core import (
    OBJECTIVES,
    Clock,
    Initial,
    Messages,
    Method,
    PrivateState,
    Program,
    ServerState,
    Slot,
    Task,
    Tree,
    init_kept,
    init_private,
    init_server,
)
from idiolect.core.trees import tree_map
from idiolect.data import Dataset, load
from idiolect.engines import EngineChoice, Forms, Workload, dry_round, initial_net, initialiser, make_task
from idiolect.engines.client_packing import SINGLE
from idiolect.engines.dry_round import reads_class_counts
from idiolect.engines.precision import PRECISIONS
from idiolect.errors import UserError
from idiolect.evaluation import Metric, Units, chosen_metrics, per_batch_metrics
from idiolect.experiments.setting_checks import (
    refuse_unprotected,
    refuse_unreadable_inputs,
    refuse_unusable_clients,
)
from idiolect.experiments.spec import Experiment
from idiolect.federation import (
    Federation,
    Preprocessing,
    SplitRules,
    Troubles,
    cohort_size,
    federate,
    select,
)
from idiolect.methods import method, without_classes
from idiolect.models import Net, check_model, is_registered
from idiolect.option_parsing import parse_call
from idiolect.partition import Partition, partition

__all__ = ["BY_OWNER", "Inputs", "Setting", "assemble", "partition_of", "pool_of", "prepare", "read_dataset"]

BY_OWNER = ("natural", "by_id")  # partitions into the owners that the data name


class Inputs(NamedTuple):
    """What a network must know of its inputs and outputs; it holds no data.

    Args:
        shape: of a row: (C, H, W) of an image, (1, 1, L) of L tokens.
        n_classes: what the network puts out: classes, labels or target numbers.
        preprocessing: what was done to the rows.
        task: what the targets are, one of ``data.TASKS``.
        dtype: the type of raw rows.
        class_names, feature_names: what the data call outputs and columns; empty if unknown.
        named: (name, shape) of several inputs that lie one after the other in a flat row.
    """

    shape: tuple[int, ...]
    n_classes: int
    preprocessing: Preprocessing
    task: str = "classification"
    dtype: str = "float32"
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    named: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @classmethod
    def of(cls, dataset: Dataset, preprocessing: Preprocessing) -> Inputs:
        """Returns the inputs that a dataset gives."""
        return cls(
            dataset.shape,
            dataset.n_classes,
            preprocessing,
            dataset.task,
            dataset.train_x.dtype.name,
            dataset.class_names,
            dataset.feature_names,
            dataset.inputs,
        )

    def plain(self) -> dict[str, Any]:
        """Returns values that JSON can hold."""
        return self._asdict() | {"preprocessing": self.preprocessing.plain()}

    @classmethod
    def of_plain(cls, values: dict[str, Any]) -> Inputs:
        """Returns what ``plain`` wrote down."""
        found: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        found["named"] = tuple((name, tuple(shape)) for name, shape in values["named"])
        found["preprocessing"] = Preprocessing.of_plain(values["preprocessing"])
        return cls(**found)


@dataclass(frozen=True)
class Setting:
    """Everything that an experiment runs on.

    Args:
        inputs: what the network knows of the data.
        work: the clients' data on the engine's device.
        partition_report: what the partition dropped.
        dataset_manifest: where the data come from.
        n_parameters: of the network, without frozen ones.
        initial: gives a client its initial network.
        cannot_batch: why the network cannot run for many clients at once; empty if it can.
        data_digests: of the data as they were read, by what a user calls them; none where they are elsewhere.
    """

    experiment: Experiment
    method: Method
    federation: Federation
    inputs: Inputs
    work: Workload
    task: Task
    partition_report: dict[str, Any]
    dataset_manifest: dict[str, Any]
    n_parameters: int
    initial: Callable[[int], Initial]
    cannot_batch: str = ""
    data_digests: Mapping[str, str] = field(default_factory=dict)

    def program(self, round: int, newcomer: bool = False) -> Program:
        """Returns the program of a round counted from 0; the number after the last is the end of the run.

        Args:
            newcomer: the program is for clients who join then and have never trained.
        """
        experiment, population = self.experiment, self.federation.population
        rate = experiment.participation_rate
        learning_rate = experiment.learning_rate_at(min(round, experiment.rounds - 1))
        size = cohort_size(rate, population)
        clock = Clock(round, experiment.rounds, rate, size, population, learning_rate, newcomer)
        return Program(self.method, self.task, experiment.scene, clock, SINGLE.differentiate)

    def selected(self, round: int) -> list[int]:
        """Returns the clients selected in a round counted from 0, in client-id order; they download the model."""
        experiment, population = self.experiment, self.federation.population
        return select(
            experiment.participation_rate,
            population,
            seed=experiment.seed,
            round=round,
            selection=experiment.selection,
        )

    @cached_property
    def largest_cohort(self) -> int:
        """The most clients that any round of the run selects, at least one."""
        if self.experiment.selection == "fixed":
            return len(self.selected(0))
        return max(1, *(len(self.selected(round)) for round in range(self.experiment.rounds)))

    def cohort(self, round: int) -> list[int]:
        """Returns the selected clients that train and answer, in client-id order: all whom no disturbance takes out."""
        selected = self.selected(round)
        if not self.experiment.under:
            return selected
        lost = self.troubles.lost(round, selected, self.local_steps)
        return [client for client in selected if client not in lost]

    def local_steps(self, round: int, clients: Sequence[int]) -> dict[int, int]:
        """Returns by client its training steps in a round up to its upload."""
        program = self.program(round)
        stages = program.method.plan(program.scene, program.clock).before
        trained = [stage for stage in stages if stage.measure is None]
        return {c: sum(self.work.steps(program, stage, c) for stage in trained) for c in clients}

    @property
    def troubles(self) -> Troubles:
        """The disturbances of the run."""
        return troubles_of(self.experiment)

    @property
    def validates(self) -> bool:
        """Whether clients hold out validation data."""
        return self.experiment.valid > 0

    @property
    def headline(self) -> str:
        """The predictor that represents the method in tables; without validation data a choice is an oracle's."""
        oracles = {} if self.validates else {choice.name: choice.oracle for choice in self.method.choices}
        return oracles.get(self.method.headline, self.method.headline)

    @property
    def private_shapes(self) -> list[Tree]:
        """One tree of each shape that a client's private state can have."""
        return [shape for forms in self.forms for shape in forms.privates]

    @property
    def first_kept(self) -> dict[str, Slot]:
        """By part, what the server keeps of a client that it has not heard from."""
        return init_kept(self.method, self.initial(0), self.federation.population)

    @cached_property
    def forms(self) -> list[Forms]:
        """Shapes of the trees in every kind of round, from dry rounds; a method that cannot work is refused."""
        with_numbers, n_classes = is_registered(self.experiment.model), self.federation.n_classes
        programs = self.programs_with_every_stage()
        found = [
            dry_round(program, self.initial(0), self.work.x, n_classes, with_numbers) for program in programs
        ]
        plans = [program.method.plan(program.scene, program.clock) for program in programs]
        refuse_unprotected(self.experiment, self.method, found[0].messages, plans)
        return found

    @property
    def no_messages(self) -> Messages:
        """What reaches the server in a round in which nobody takes part: stacks without rows."""
        one = self.forms[0].messages
        return tree_map(lambda leaf: self.work.like.new_empty((0, *leaf.shape), dtype=leaf.dtype), one)

    def programs_with_every_stage(self) -> list[Program]:
        """Returns programs that together have every stage, with that of newcomers where there are any."""
        programs = [self.program(round) for round in _rounds_with_every_stage(self)]
        if self.experiment.newcomers:
            programs.append(self.program(self.experiment.rounds, newcomer=True))
        return programs

    @cached_property
    def reads_class_counts(self) -> bool:
        """Whether what a client does depends on how many examples of each class it has."""
        return reads_class_counts(self.program(0), self.initial(0), self.work.x, self.federation.n_classes)

    @property
    def numbers_stay_at_sites(self) -> bool:
        """Whether sites keep losses, scores and counts to themselves, since the noise of a part covers none of them."""
        promised = (part.guarantee for part in self.method.parts if part.guarantee)
        return self.work.is_deployed and any(one.noise for one in promised)

    @property
    def trains_shared_model(self) -> bool:
        """Whether the server holds every parameter of the model, and some kind of round replaces one of them."""
        pairs = [[sent["params"] for sent in forms.broadcasts] for forms in self.forms]
        moved = any(after[name] is not before[name] for before, after in pairs for name in before)
        return moved and self.method.is_complete(self.task.structure)

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """What is measured of every predictor: what its task has by default, and what the experiment names besides."""
        found = chosen_metrics(self.inputs.task, self.inputs.n_classes, self.experiment.metrics)
        if self.experiment.calibration == "whole":
            return found
        if not OBJECTIVES[self.inputs.task].has_classes:
            raise UserError(
                f"calibration {self.experiment.calibration} averages errors of class probabilities, and "
                f"{self.inputs.task} has none; set calibration to whole"
            )
        return found | per_batch_metrics(self.experiment.batch_size)

    @property
    def primary_metric(self) -> str:
        """The metric that the method is judged by."""
        return OBJECTIVES[self.inputs.task].primary

    @property
    def units(self) -> Units | None:
        """Mean and deviation of the targets of a regression, by which they were standardised."""
        scaled = self.inputs.preprocessing
        return (scaled.target_mean, scaled.target_std) if scaled.target_mean else None

    def first_server(self) -> ServerState:
        """Returns the server state before the first round."""
        return init_server(self.method, self.initial(0), self.task.structure)

    def first_private(self, client: int) -> PrivateState:
        """Returns the private state of a client that has never trained."""
        return init_private(self.method, self.initial(client), self.task.structure, self.experiment.buffers)


def prepare(
    experiment: Experiment,
    engine_choice: EngineChoice,
    data_dir: str | Path | None = None,
    dataset: Dataset | None = None,
) -> Setting:
    """Loads the data, makes the clients, builds the network and checks that the method can run.

    Args:
        dataset: replaces the one that the experiment names.
    """
    given = dataset or read_dataset(experiment.dataset, data_dir)
    dataset = pool_of(experiment, given)
    parted = partition_of(experiment, dataset)
    federation = federate(
        dataset,
        parted,
        SplitRules(
            valid=experiment.valid,
            test=experiment.test,
            client_test=experiment.client_test,
            public=experiment.public,
            public_in_test=experiment.public_in_test,
            newcomers=experiment.newcomers,
        ),
        seed=experiment.seed_of_data,
        allocate=engine_choice.allocate,
    )
    federation = troubles_of(experiment).disturbed(federation, experiment.rounds)
    report, source = parted.report(dataset.train_labels), dict(dataset.manifest)
    inputs = Inputs.of(dataset, federation.preprocessing)
    return assemble(
        experiment, engine_choice, federation, inputs, report=report, source=source, digests=given.digests
    )


def troubles_of(experiment: Experiment) -> Troubles:
    """Returns the disturbances of an experiment."""
    return Troubles(experiment.under, experiment.seed, experiment.seed_of_data)


def partition_of(experiment: Experiment, dataset: Dataset) -> Partition:
    """Shares the rows of a dataset out among clients; a partition by class is refused where there are no classes."""
    name = parse_call(experiment.partition)[0]
    if not dataset.has_classes and name not in (*BY_OWNER, "iid"):
        raise UserError(
            f"partition {experiment.partition} shares rows out by class and the task {dataset.task} of {dataset.name} "
            "has none; set partition to iid, or to natural where the data name owners"
        )
    return partition(
        experiment.partition,
        dataset.train_labels,
        experiment.clients,
        experiment.seed_of_data,
        ids=dataset.train_ids,
    )


def assemble(
    experiment: Experiment,
    engine_choice: EngineChoice,
    federation: Federation,
    inputs: Inputs,
    *,
    held: Sequence[int] | None = None,
    is_deployed: bool = False,
    report: dict[str, Any] | None = None,
    source: dict[str, Any] | None = None,
    digests: Mapping[str, str] | None = None,
) -> Setting:
    """Returns the setting of an experiment on a federation that exists already.

    Args:
        held: the clients whose rows are here; all of them by default.
        is_deployed: the data are those of a site, or the server is one of sites.
        report: what the partition dropped.
        source: where the data come from.
        digests: of the data as they were read.
    """
    chosen, image_shape = method(experiment.method), inputs.shape
    scheme, seed = experiment.initialisation, experiment.seed
    net = initial_net(experiment.model, image_shape, inputs.n_classes, scheme, seed, inputs.named)
    cannot_batch = check_model(net, image_shape, inputs.n_classes) if is_registered(experiment.model) else ""
    task = _task_of(experiment, net, inputs, not cannot_batch)
    has_classes = OBJECTIVES[inputs.task].has_classes
    chosen.check(task.structure, experiment.scene, instead=() if has_classes else without_classes())
    here = np.arange(len(federation.clients)) if held is None else np.asarray(held, np.int64)
    refuse_unusable_clients(experiment, chosen, federation, net, here)
    refuse_unreadable_inputs(experiment, federation, net)
    work = engine_choice.workload(
        federation,
        seed=experiment.seed,
        drop_single=net.has_batchnorm,
        weighting=experiment.weighting,
        precision=PRECISIONS[experiment.precision],
    )
    work = replace(work, is_deployed=is_deployed)
    n_parameters = sum(p.numel() for p in net.parameters() if p.requires_grad)
    initial = initialiser(
        experiment.model, image_shape, inputs.n_classes, scheme, seed, work.like, inputs.task, inputs.named
    )
    origin = (report or {}, source or {})
    setting = Setting(
        experiment,
        chosen,
        federation,
        inputs,
        work,
        task,
        *origin,
        n_parameters,
        initial,
        cannot_batch,
        digests or {},
    )
    setting.metrics  # noqa: B018 - refuses names that are no metrics
    setting.forms  # noqa: B018 - tries the method
    return setting


def _task_of(experiment: Experiment, net: Net, inputs: Inputs, batchable: bool) -> Task:
    """Returns the network's training task; black, with which augmentation fills images, is normalised as they are."""
    precision = PRECISIONS[experiment.precision]
    scaled = inputs.preprocessing
    black = [-mean / std for mean, std in zip(scaled.mean, scaled.std, strict=True)]
    compute = precision.compute if precision.compute != precision.storage else None
    return make_task(net, experiment.augmentation, black, compute, inputs.task, batchable)


def _rounds_with_every_stage(setting: Setting) -> list[int]:
    """Returns rounds that together have every stage: the last, and earlier ones with a stage that later ones lack.

    A deployment needs the first one too, because what sites report there can differ with the same stages (SuPerFed has
    one predictor before it mixes), and answers are checked.
    """
    rounds: list[int] = []
    seen: set[tuple[str, str]] = set()
    for round in reversed(range(setting.experiment.rounds)):
        program = setting.program(round)
        plan = program.method.plan(program.scene, program.clock)
        stages = {(phase, stage.name) for phase, found in plan._asdict().items() for stage in found}
        if not rounds or not stages <= seen or (round == 0 and setting.work.is_deployed):
            rounds.append(round)
            seen |= stages
    return rounds


def pool_of(experiment: Experiment, dataset: Dataset) -> Dataset:
    """Returns the dataset whose training part holds all samples that the experiment shares out."""
    if experiment.pool == "train":
        return dataset
    if parse_call(experiment.partition)[0] in BY_OWNER:
        raise UserError(
            f"partition {experiment.partition} gives every owner its samples, and the test part of {dataset.name} "
            "names no owners; set pool to train"
        )
    return dataset.pooled()


def read_dataset(text: str, data_dir: str | Path | None = None) -> Dataset:
    """Loads a dataset by name, with options as in ``synthetic(skew=0.5)``; the last one is cached."""
    return _dataset(text, str(data_dir) if data_dir else None)


@lru_cache(maxsize=1)
def _dataset(text: str, data_dir: str | None) -> Dataset:
    name, options = parse_call(text)
    return load(name, data_dir, **options)
