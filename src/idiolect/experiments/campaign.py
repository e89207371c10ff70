"""What has to be run, and what is taken from each run; every run is made once, whoever needs it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.data.availability import availability
from idiolect.errors import UserError
from idiolect.experiments.progress import Watcher
from idiolect.experiments.run import run
from idiolect.experiments.spec import Experiment
from idiolect.records import Run

__all__ = ["RunOutcome", "RunRequest", "Where", "run_campaign"]


@dataclass(frozen=True)
class RunRequest:
    """Args:
    key: whose number it is.
    take: what is wanted of the run.
    """

    key: Hashable
    experiment: Experiment
    notes: tuple[str, ...]
    take: Callable[[Run], Any]


class RunOutcome(NamedTuple):
    """What was taken, or why nothing was: data that are not on this machine, or a refusal."""

    value: Any = None
    missing: str = ""
    failed: str = ""


@dataclass(frozen=True)
class Where:
    """Where and how runs are made."""

    out: Path
    engine: str = "auto"
    device: str = "auto"
    data_dir: Path | None = None
    checkpoint_every: int = 10


def run_campaign(tasks: Sequence[RunRequest], where: Where, watcher: Watcher) -> dict[Hashable, RunOutcome]:
    """Runs what is not finished, takes up what was interrupted, and goes on where one run is refused."""
    groups: dict[Experiment, list[RunRequest]] = {}
    for task in sorted(tasks, key=lambda task: task.experiment.dataset):
        groups.setdefault(task.experiment, []).append(task)
    found: dict[Hashable, RunOutcome] = {}
    for experiment, wanted in groups.items():
        data = availability(experiment.dataset, where.data_dir)
        if not data.present:
            reason = f"{data.dataset} is not on this machine; {data.advice}"
            found |= {task.key: RunOutcome(missing=reason) for task in wanted}
            continue
        try:
            done = _run(wanted[0], where, watcher)
        except UserError as error:
            watcher.say(f"refused: {error}")
            found |= {task.key: RunOutcome(failed=str(error)) for task in wanted}
            continue
        found |= {task.key: _taken(task, done) for task in wanted}
    return found


def _run(task: RunRequest, where: Where, watcher: Watcher) -> Run:
    return run(
        task.experiment,
        out=where.out,
        engine=where.engine,
        device=where.device,
        data_dir=where.data_dir,
        resume=True,
        checkpoint_every=where.checkpoint_every,
        watcher=watcher,
        notes=task.notes,
    )


def _taken(task: RunRequest, done: Run) -> RunOutcome:
    try:
        return RunOutcome(task.take(done))
    except UserError as error:
        return RunOutcome(failed=str(error))
