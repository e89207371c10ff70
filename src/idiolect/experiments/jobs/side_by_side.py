"""Runs side by side: ``--jobs N`` processes make whole runs, and one process with ``--jobs 1``.

Both ways have one interface, ``Jobs``: a task is started, and the next result is waited for.  On a CPU the rows are the
same bit for bit: a job has the threads of a run alone, because PyTorch's sums depend on their number.  An interrupt, or
an error in one run, stops all runs as Ctrl-C stops a single one: what they have saved stays.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from idiolect.engines.pool.shared_memory import Mailbox
from idiolect.engines.process_pickling import UNSENDABLE
from idiolect.errors import UserError
from idiolect.experiments.execution import Execution
from idiolect.experiments.identity import name_of
from idiolect.experiments.jobs.gpu_memory import GpuMemory, peak_of
from idiolect.experiments.jobs.job_process import (
    START,
    STOP,
    Done,
    Failed,
    JobSetup,
    Judged,
    Refused,
    Shown,
    StartRun,
    Stopped,
)
from idiolect.experiments.jobs.registered_names import registered_here
from idiolect.experiments.progress.watcher import Watcher, for_several
from idiolect.experiments.rounds.divergence import Diverged
from idiolect.experiments.rounds.early_stopping import StoppedEarly
from idiolect.experiments.run import make_run
from idiolect.experiments.spec import Experiment
from idiolect.methods import label
from idiolect.records import Divergence, read_manifest

__all__ = ["Jobs", "RunResult", "RunTask", "open_jobs", "run_tasks"]

PATIENCE = 30.0  # seconds that a stopped job has to save and end
FAREWELL = 3.0  # seconds that a job without a run has to end its own processes


class RunTask(NamedTuple):
    """A run that is to be made.

    Args:
        key: identifies the task among the results.
        notes: sentences that are kept in the record of the run, beside those of the execution.
        judged: the judge is asked after every evaluated round whether to stop.
    """

    key: Hashable
    experiment: Experiment
    notes: tuple[str, ...] = ()
    judged: bool = False


class RunResult(NamedTuple):
    """What came of a task: the folder of the finished run, or why there is none.

    Args:
        refused: the sentence of the ``UserError`` that the run raised.
        divergence: where the run diverged, if that is why it was refused.
        stopped: the rounds after which the judge stopped it.
    """

    key: Hashable
    folder: Path | None = None
    refused: str = ""
    stopped: int = 0
    divergence: Divergence | None = None


# (key of the task, rounds done, validation metric) -> stop
TaskJudge = Callable[[Hashable, int, float], bool]


def _never(key: Hashable, round: int, value: float) -> bool:
    return False


class Jobs(Protocol):
    """Makes runs; a context manager that leaves no process behind."""

    def start(self, task: RunTask) -> None: ...

    def next(self) -> RunResult:
        """Waits for the next run to end."""
        ...

    @property
    def is_free(self) -> bool:
        """Whether another task would start at once."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether a result will come."""
        ...

    def __enter__(self) -> Jobs: ...

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None: ...


def open_jobs(execution: Execution, runs: int, judge: TaskJudge = _never) -> Jobs:
    """Returns what makes runs as the execution says, and tells the watcher how many will come.

    Args:
        runs: how many are expected; there are no more processes than that.
    """
    execution = replace(execution, jobs=max(1, min(execution.jobs, runs)))
    if execution.jobs == 1:
        execution.watcher.expect(runs)
        return _OneByOne(execution, judge)
    return _JobProcesses(execution, runs, judge)


def run_tasks(tasks: Iterable[RunTask], execution: Execution, runs: int) -> Iterator[RunResult]:
    """Makes the runs of all tasks and yields the results as they come.

    Args:
        runs: how many of them are not finished yet.
    """
    waiting = deque(tasks)
    with open_jobs(execution, runs) as jobs:
        while waiting or jobs.is_busy:
            while waiting and jobs.is_free:
                jobs.start(waiting.popleft())
            yield jobs.next()


class _OneByOne:
    """Makes runs one after the other in this process."""

    def __init__(self, execution: Execution, judge: TaskJudge) -> None:
        self._execution, self._judge = execution, judge
        self._task: RunTask | None = None

    def start(self, task: RunTask) -> None:
        self._task = task

    @property
    def is_free(self) -> bool:
        return self._task is None

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    def next(self) -> RunResult:
        task, self._task = self._task, None
        assert task is not None
        execution = replace(self._execution, notes=[*self._execution.notes, *task.notes])

        def judge(round: int, value: float) -> bool:
            return self._judge(task.key, round, value)

        try:
            done = make_run(task.experiment, execution, judge if task.judged else None)
            return RunResult(task.key, done.folder)
        except StoppedEarly as stopped:
            return RunResult(task.key, stopped=stopped.round)
        except Diverged as error:
            return RunResult(task.key, refused=str(error), divergence=error.divergence)
        except UserError as error:
            return RunResult(task.key, refused=str(error))

    def __enter__(self) -> Jobs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        """Does nothing: the run itself has ended."""


@dataclass(eq=False)
class _Job:
    """A job process as its parent sees it.

    Args:
        task: the run that it makes; None where it waits for one.
        name: that of the run.
        starting: the run has not finished a round, and may take more of a GPU's memory than it has so far.
    """

    process: subprocess.Popen[bytes]
    pipe: Connection
    watcher: Watcher
    task: RunTask | None = None
    name: str = ""
    starting: bool = False


class _JobProcesses:
    """Makes runs in several processes, each of which takes the next run when it is free."""

    def __init__(self, execution: Execution, runs: int, judge: TaskJudge) -> None:
        self._execution, self._judge, self._count = execution, judge, execution.jobs
        self._watcher = for_several(execution.watcher)
        self._fields = _job_execution(execution)
        self._waiting: deque[tuple[RunTask, str]] = deque()
        self._results: deque[RunResult] = deque()
        self._jobs: list[_Job] = []
        self._held = False  # the GPU is full until a run ends
        self._memory = GpuMemory()
        self._watcher.expect(runs, execution.jobs)

    def __enter__(self) -> Jobs:
        box = Mailbox()
        try:
            setup = JobSetup(_put_names(box), torch.get_num_threads())
            for number in range(self._count):
                self._jobs.append(_start_job(setup, box, self._watcher.lane(number)))
        except BaseException:
            self._end_all(stop=False)
            raise
        finally:
            box.close()
        return self

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        self._end_all(stop=kind is not None)

    def start(self, task: RunTask) -> None:
        self._waiting.append((task, name_of(task.experiment)))
        self._assign()

    @property
    def is_free(self) -> bool:
        return any(job.task is None for job in self._jobs) and not self._waiting

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._results) or any(job.task for job in self._jobs)

    def next(self) -> RunResult:
        while not self._results:
            self._assign()
            for pipe in wait([job.pipe for job in self._jobs]):
                self._hear(next(job for job in self._jobs if job.pipe is pipe))
        return self._results.popleft()

    def _assign(self) -> None:
        """Gives waiting runs to free jobs; a run that another job makes already waits for its end."""
        for job in self._jobs:
            running = {other.name for other in self._jobs if other.task}
            ready = next((one for one in self._waiting if one[1] not in running), None)
            if job.task is None and ready is not None and not (self._held and running):
                self._waiting.remove(ready)
                job.task, job.name = ready
                fields = {**self._fields, "notes": (*self._execution.notes, *job.task.notes)}
                others = [other.task.experiment for other in self._jobs if other.task and other.starting]
                memory = self._memory.free_before(job.task.experiment, others) if running else 0
                job.starting = True
                asked = StartRun(job.task.experiment, fields, job.name, job.task.judged, memory)
                with suppress(OSError):  # a dead job is found when its answer is missing
                    job.pipe.send(asked)

    def _hear(self, job: _Job) -> None:
        """Takes a message of a job."""
        try:
            message = job.pipe.recv()
        except (EOFError, OSError):
            raise _died(job) from None
        task = job.task
        if isinstance(message, Shown):
            job.starting &= message.what != "advance"
            getattr(job.watcher, message.what, lambda *facts: None)(*message.facts)
            return
        assert task is not None
        if isinstance(message, Judged):
            job.pipe.send(self._judge(task.key, message.round, message.value))
            return
        job.task, job.name = None, ""
        if isinstance(message, Failed):
            raise RuntimeError(f"{label(task.experiment.method)}: {message.text}") from message.error
        if isinstance(message, Refused) and message.waits:
            self._held = True
            self._waiting.appendleft((task, name_of(task.experiment)))
            self._watcher.hint(
                f"{message.sentence}: {label(task.experiment.method)} waits for another run to end"
            )
            return
        self._held = False
        if isinstance(message, Done):
            self._memory.measured(task.experiment, peak_of(read_manifest(message.folder)))
        self._results.append(_result(task, message))

    def _end_all(self, stop: bool) -> None:
        """Ends all jobs; busy ones may save what they have, as after Ctrl-C."""
        try:
            busy = [job for job in self._jobs if job.task and stop]
            for job in busy:
                with suppress(OSError):
                    job.pipe.send(STOP)
            deadline = time.monotonic() + PATIENCE
            while busy and (left := deadline - time.monotonic()) > 0:
                for pipe in wait([job.pipe for job in busy], left):
                    job = next(job for job in busy if job.pipe is pipe)
                    if not _last_words(job):
                        busy.remove(job)
        finally:
            for job in self._jobs:
                job.pipe.close()
            deadline = time.monotonic() + FAREWELL
            for job in self._jobs:
                with suppress(subprocess.TimeoutExpired):
                    job.process.wait(max(0.0, deadline - time.monotonic()))
                job.process.kill()
                job.process.wait()
            self._jobs.clear()


def _job_execution(execution: Execution) -> dict[str, Any]:
    """Returns the fields of the execution of each job, with its share of the workers."""
    choice = execution.engine_choice().on_cluster(execution.jobs)
    one = replace(execution, engine=choice.engine, device=choice.device, workers=choice.workers, jobs=1)
    return {
        field.name: getattr(one, field.name) for field in dataclasses.fields(one) if field.name != "watcher"
    }


def _put_names(box: Mailbox) -> Any:
    try:
        return box.put_anything(registered_here())
    except UNSENDABLE as error:
        raise UserError(
            f"own code or data hold something that cannot be sent to another process ({error}); leave --jobs out"
        ) from error


def _start_job(setup: JobSetup, box: Mailbox, watcher: Watcher) -> _Job:
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", START.format(path=sys.path, pipe=theirs.fileno(), box=box.file)],
            pass_fds=[theirs.fileno(), box.file],
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C goes to the parent alone, which then stops the jobs
        )
    ours.send(setup)
    return _Job(process, ours, watcher)


def _result(task: RunTask, message: Any) -> RunResult:
    if isinstance(message, Done):
        return RunResult(task.key, Path(message.folder))
    if isinstance(message, Stopped):
        return RunResult(task.key, stopped=message.round)
    return RunResult(task.key, refused=message.sentence, divergence=message.divergence)


def _died(job: _Job) -> UserError:
    code = job.process.wait()
    what = f" while it ran {label(job.task.experiment.method)}" if job.task else ""
    return UserError(
        f"a job process ended with exit code {code}{what}; the machine may be out of memory: try fewer --jobs, and "
        "--resume goes on from what is saved"
    )


def _last_words(job: _Job) -> bool:
    """Passes on what a stopped job says; returns False once it has ended."""
    try:
        message = job.pipe.recv()
    except (EOFError, OSError):
        return False
    if isinstance(message, Shown) and message.what in ("say", "end"):
        getattr(job.watcher, message.what)(*message.facts)
    if isinstance(message, Judged):
        with suppress(OSError):
            job.pipe.send(False)
    return isinstance(message, Shown | Judged)
