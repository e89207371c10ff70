"""The execution: a frozen value that says how a run is made; an ``Experiment`` says everything that changes numbers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from idiolect.engines import EngineChoice, place
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice
from idiolect.experiments.progress.watcher import Silent, Watcher, progress_on_stderr
from idiolect.experiments.rounds.divergence import ON_DIVERGENCE
from idiolect.experiments.spec import Experiment, unknown_setting
from idiolect.experiments.tracking import TRACKERS
from idiolect.federation import STORES
from idiolect.models import name_of_model
from idiolect.option_parsing import is_of_kind

__all__ = ["Execution", "split_keywords"]

MOST_JOBS = 1024


@dataclass(frozen=True)
class Execution:
    """How a run is made: what computes it, where its files lie, and who is told about it.

    Nothing here changes a number, beyond the last digits in which engines may differ.  Values that cannot work are
    refused when the object is made.

    Args:
        engine: ``auto``, ``loop``, ``cohort``, ``pool`` or ``ray``.
        device: ``auto``, ``cpu`` or ``cuda``.
        workers: processes of the engines ``pool`` and ``ray``; None starts one for each core.
        ray_address: address of a running Ray cluster, for the engine ``ray``; None starts one on this machine.
        gpus_per_worker: GPUs of each worker of the engine ``ray``.
        store: where private state is kept: ``auto``, ``device``, ``host`` or ``disk``.
        store_cache: megabytes of a disk store that stay in memory; None leaves the choice to the store.
        data_dir: folder of the datasets; None takes the environment variable ``IDIOLECT_DATA``.
        out: folder in which the folders of runs are made.
        resume: continues an interrupted run from its last checkpoint.
        accept_changes: continues it with other code or versions of packages too, which its manifest then records.
        checkpoint_every: rounds between two checkpoints.
        on_divergence: what becomes of a run whose numbers are no longer finite.  ``stop`` ends it with an error;
            ``record`` ends it too, and keeps what was measured until then as a finished run whose manifest says where
            it diverged.  None records in a reproduction and stops elsewhere.
        log: trackers that receive the numbers of every round, ``tensorboard``, ``mlflow`` and ``wandb``; they
            write below ``out``.
        jobs: runs that a comparison, a sweep or a reproduction makes side by side, each in a process of its own; they
            share the cores, a GPU, or the workers of a Ray cluster.
        notes: sentences that are kept in the record of the run.
        watcher: receives the progress of the run; a bar on a terminal by default, lines on standard error elsewhere,
            and ``Silent()`` for nothing.  Equality of two executions ignores it.

    >>> Execution(engine="loop", workers=2)
    Traceback (most recent call last):
    idiolect.errors.UserError: workers are for the engines pool and ray; the engine here is loop
    """

    engine: str = "auto"
    device: str = "auto"
    workers: int | None = None
    ray_address: str | None = None
    gpus_per_worker: float = 0.0
    store: str = "auto"
    store_cache: float | None = None
    data_dir: str | Path | None = None
    out: str | Path = "runs"
    resume: bool = False
    accept_changes: bool = False
    checkpoint_every: int = 10
    jobs: int = 1
    on_divergence: str | None = None
    log: Sequence[str] = ()
    notes: Sequence[str] = ()
    watcher: Watcher = field(default_factory=progress_on_stderr, compare=False, repr=False)

    def __post_init__(self) -> None:
        for one in dataclasses.fields(self):
            value, kind = getattr(self, one.name), str(one.type)
            if not is_of_kind(value, kind):
                raise UserError(f"{one.name} must be {kind}, got {value!r}")
        refuse_outside("checkpoint_every", self.checkpoint_every, 1)
        refuse_outside("jobs", self.jobs, 1, MOST_JOBS)
        refuse_unknown_choice("store", self.store, STORES)
        if self.on_divergence is not None:
            refuse_unknown_choice("on_divergence", self.on_divergence, ON_DIVERGENCE)
        if self.store_cache is not None:
            refuse_outside("store_cache", self.store_cache, 0)
        for name in ("log", "notes"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        for tracker in self.log:
            refuse_unknown_choice("log", tracker, TRACKERS)
        named = self.ray_address or os.environ.get("RAY_ADDRESS") or "local"
        if self.engine_choice().engine == "ray" and self.jobs > 1 and named == "local":
            raise UserError(
                "runs side by side share a Ray cluster that is there, and none is named; give its --ray-address, or "
                "leave --jobs or --engine ray out"
            )

    @property
    def records_divergence(self) -> bool:
        return self.on_divergence == "record"

    def engine_choice(self) -> EngineChoice:
        """Resolves ``auto`` to an engine and a device of this machine.

        Raises:
            UserError: the engine, device or workers are unknown or not available here.
        """
        choice = place(self.engine, self.device, self.workers, self.ray_address, self.gpus_per_worker)
        return choice.for_jobs(self.jobs)


FIELDS = tuple(field.name for field in dataclasses.fields(Execution))


def split_keywords(
    execution: Execution | None, keywords: Mapping[str, Any]
) -> tuple[Execution, dict[str, Any]]:
    """Separates the keywords of ``run`` and its relatives into an execution and settings of the experiment.

    Args:
        execution: the base, or None for the defaults; a keyword wins over its field.
        keywords: fields of ``Execution`` and of ``Experiment``, by name; ``quiet=True`` is the watcher ``Silent()``.

    Raises:
        UserError: a keyword is a field of neither.
    """
    if execution is not None and not isinstance(execution, Execution):
        raise UserError(f"execution must be an Execution, got {execution!r}; write Execution(engine=...)")
    keywords = dict(keywords)
    quiet = keywords.pop("quiet", False)
    if not isinstance(quiet, bool):
        raise UserError(f"quiet must be True or False, got {quiet!r}")
    if quiet:
        keywords["watcher"] = Silent()
    settings = {key: value for key, value in keywords.items() if key not in FIELDS}
    if "model" in settings:
        settings["model"] = name_of_model(settings["model"])
    known = {field.name for field in dataclasses.fields(Experiment)}
    for key in settings:
        if key not in known:
            raise unknown_setting(key, also=(*FIELDS, "quiet"))
    changed = {key: value for key, value in keywords.items() if key in FIELDS}
    return Execution(**changed) if execution is None else dataclasses.replace(execution, **changed), settings
