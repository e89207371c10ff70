"""A campaign: many runs, one after the other or side by side, each made once however many numbers are taken from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from idiolect.data.availability import availability
from idiolect.errors import UserError
from idiolect.experiments.execution import Execution
from idiolect.experiments.finished.finished_run import open_run
from idiolect.experiments.identity import name_of
from idiolect.experiments.jobs.side_by_side import RunTask, run_tasks
from idiolect.experiments.run import with_public_samples
from idiolect.experiments.spec import Experiment
from idiolect.experiments.tracking import open_log
from idiolect.methods import label
from idiolect.records import Run, divergence_of, finished

__all__ = ["RunOutcome", "RunRequest", "run_campaign", "taken"]


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
        diverged: where the run diverged, as a table says it.
    """

    value: Any = None
    missing: str = ""
    failed: str = ""
    diverged: str = ""


def run_campaign(requests: Sequence[RunRequest], execution: Execution) -> dict[Hashable, RunOutcome]:
    """Makes every run that the requests need, ``execution.jobs`` at a time, and returns the outcomes by key.

    Finished runs are read and interrupted ones resumed.  A run that is refused does not stop the others, and one that
    diverges is recorded unless ``execution`` says otherwise.
    """
    execution = replace(execution, on_divergence=execution.on_divergence or "record")
    open_log(execution.log, execution.out)  # a tracker that cannot be opened is refused before the first run
    by_experiment: dict[Experiment, list[RunRequest]] = {}
    for request in sorted(requests, key=lambda request: request.experiment.dataset):
        made = with_public_samples(request.experiment, [request.experiment.method])
        by_experiment.setdefault(made, []).append(request)
    found: dict[Hashable, RunOutcome] = {}
    tasks: list[RunTask] = []
    for experiment, wanted in by_experiment.items():
        if reason := _missing_data(experiment, execution):
            found |= {request.key: RunOutcome(missing=reason) for request in wanted}
        else:
            tasks.append(RunTask(experiment, experiment, wanted[0].notes))
    unfinished = [one for one in tasks if not _is_finished(one.experiment, execution)]
    if len(unfinished) > 1:
        execution.watcher.say(
            f"{len(unfinished)} of {len(tasks)} runs are to be made; fewer with some columns or methods alone"
        )
    for result in run_tasks(tasks, replace(execution, resume=True), len(unfinished)):
        wanted = by_experiment[cast("Experiment", result.key)]
        if result.folder is None:
            name = label(wanted[0].experiment.method)
            sentence = result.refused if name in result.refused else f"{name}: {result.refused}"
            execution.watcher.say(f"refused: {sentence}")
            found |= {request.key: RunOutcome(failed=result.refused) for request in wanted}
        else:
            done = open_run(result.folder, data_dir=execution.data_dir)
            found |= {request.key: taken(request, done) for request in wanted}
    return found


def _missing_data(experiment: Experiment, execution: Execution) -> str:
    """Returns why a run cannot be made on this machine; empty where its data are present."""
    data = availability(experiment.dataset, execution.data_dir)
    return "" if data.present else f"{data.dataset} is not on this machine; {data.advice}"


def _is_finished(experiment: Experiment, execution: Execution) -> bool:
    try:
        return finished(execution.out, name_of(experiment))
    except UserError:  # the run itself says what is wrong
        return False


def taken(request: RunRequest, done: Run) -> RunOutcome:
    if (diverged := divergence_of(done.manifest)) is not None:
        return RunOutcome(diverged=diverged.text)
    try:
        return RunOutcome(request.take(done))
    except UserError as error:
        return RunOutcome(failed=str(error))
