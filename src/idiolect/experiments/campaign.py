"""A campaign: many runs one after the other, each made once however many numbers are taken from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from idiolect.data.availability import availability
from idiolect.errors import UserError
from idiolect.experiments.execution import Execution
from idiolect.experiments.run import run
from idiolect.experiments.spec import Experiment
from idiolect.experiments.tracking import open_log
from idiolect.records import Run

__all__ = ["RunOutcome", "RunRequest", "run_campaign"]


@dataclass(frozen=True)
class RunRequest:
    """A number that someone wants, and the experiment whose run gives it.

    Args:
        key: identifies the request among the outcomes.
        notes: sentences that are kept in the record of the run.
        take: computes what is wanted from the run.
    """

    key: Hashable
    experiment: Experiment
    notes: tuple[str, ...]
    take: Callable[[Run], Any]


class RunOutcome(NamedTuple):
    """What was taken from a run, or why there is nothing.

    Args:
        missing: the dataset that is not on this machine, and how to get it.
        failed: why the run, or the taking, was refused.
    """

    value: Any = None
    missing: str = ""
    failed: str = ""


def run_campaign(requests: Sequence[RunRequest], execution: Execution) -> dict[Hashable, RunOutcome]:
    """Makes every run that the requests need and returns the outcomes by key.

    Finished runs are read and interrupted ones resumed.  A run that is refused does not stop the others.
    """
    open_log(execution.log, execution.out)  # a tracker that cannot be opened is refused before the first run
    by_experiment: dict[Experiment, list[RunRequest]] = {}
    for request in sorted(requests, key=lambda request: request.experiment.dataset):
        by_experiment.setdefault(request.experiment, []).append(request)
    execution.watcher.expect(len(by_experiment))
    found: dict[Hashable, RunOutcome] = {}
    for experiment, wanted in by_experiment.items():
        data = availability(experiment.dataset, execution.data_dir)
        if not data.present:
            reason = f"{data.dataset} is not on this machine; {data.advice}"
            found |= {request.key: RunOutcome(missing=reason) for request in wanted}
            continue
        try:
            made = replace(execution, resume=True, notes=[*execution.notes, *wanted[0].notes])
            done = run(experiment, execution=made)
        except UserError as error:
            execution.watcher.say(f"refused: {error}")
            found |= {request.key: RunOutcome(failed=str(error)) for request in wanted}
            continue
        found |= {request.key: _taken(request, done) for request in wanted}
    return found


def _taken(request: RunRequest, done: Run) -> RunOutcome:
    try:
        return RunOutcome(request.take(done))
    except UserError as error:
        return RunOutcome(failed=str(error))
