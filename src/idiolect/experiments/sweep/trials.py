"""The trials of a sweep on their way: they are begun, run, judged and booked, one after the other or side by side."""

from __future__ import annotations

import math
import shutil
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast

from idiolect.errors import UserError
from idiolect.experiments.execution import Execution
from idiolect.experiments.finished.finished_run import open_run
from idiolect.experiments.identity import name_of
from idiolect.experiments.jobs.side_by_side import Jobs, RunResult, RunTask, open_jobs
from idiolect.experiments.run import with_public_samples
from idiolect.experiments.run_binding import note_on_changes
from idiolect.experiments.spec import Experiment
from idiolect.experiments.sweep.axes import Trial
from idiolect.experiments.sweep.method_search import MethodSearch, SearchPlan
from idiolect.experiments.sweep.optuna_search import should_stop
from idiolect.experiments.sweep.tables import TrialResult
from idiolect.experiments.sweep.trial_book import BookedTrial, TrialBook
from idiolect.experiments.tracking import open_log
from idiolect.methods import label
from idiolect.records import Run, finished, partial_folder
from idiolect.reports import ACCURACY, JudgedMetric, judged_by
from idiolect.statistics import client_scores, headline, server_curve

__all__ = ["TrialRuns", "TrialScores", "trial_scores"]

WARM_UP = 4  # a trial may be stopped early from a quarter of its rounds on


class TrialScores(NamedTuple):
    """What a run is judged by, means over clients; ``server`` is NaN for a method without a global model."""

    valid: float
    test: float
    server: float
    metric: JudgedMetric = ACCURACY


def trial_scores(run: Run) -> TrialScores:
    """Returns the final values of the method's headline predictor.

    Where that predictor stands for a choice between several, they are those of the one that was chosen.
    """
    name = str(run.manifest.get("choices", {}).get(headline(run), headline(run)))
    valid, test = (client_scores(run, name, split=split) for split in ("valid", "test"))
    if valid.empty:
        raise UserError(f"run {run.manifest['name']} was not scored on validation data")
    server = server_curve(run)
    shared = float(server.iloc[-1]) if len(server) else math.nan
    return TrialScores(float(valid.mean()), float(test.mean()), shared, judged_by([run]))


class _RunKey(NamedTuple):
    method: int
    number: int
    seed: int


class TrialRuns:
    """A sweep on its way: begins trials, has their runs made, and books what comes of them."""

    def __init__(
        self, searches: Sequence[MethodSearch], plan: SearchPlan, execution: Execution, folder: Path
    ) -> None:
        self._searches, self._plan, self._execution, self._folder = searches, plan, execution, folder
        self._book = TrialBook(folder)
        self._made: dict[tuple[int, int], tuple[Trial, Experiment]] = {}
        self._scores: dict[tuple[int, int], dict[int, TrialScores]] = {}
        self._waiting: deque[RunTask] = deque()

    def run(self) -> list[TrialResult]:
        """Runs the sweep to its end and returns all trials, method by method."""
        # what cannot be opened or makes no sense is refused before the first run
        open_log(self._execution.log, self._execution.out)
        for search in self._searches:
            for trial in search.fixed[:1]:
                name_of(search.experiment(trial))
            self._refuse_small_budget(search)
        self._book = TrialBook.open(self._folder)
        try:
            self._continue_booked()
            with open_jobs(self._execution, self._expected_runs(), self._judge) as jobs:
                self._drive(jobs)
        finally:
            self._book.close()
        return self._results()

    def _expected_runs(self) -> int:
        """Returns about how many runs are still to be made."""
        seeds, trials = len(self._plan.seeds), 0
        for search in self._searches:
            begun = self._book.of(search.place)
            left = search.most - len(begun)
            if self._plan.budget:
                spent = sum(self._cost(one) for one in begun)
                left = min(left, (self._plan.budget - spent) // (self._rounds(search) * seeds))
            trials += max(left, 0)
        return trials * seeds + len(self._waiting)

    def _drive(self, jobs: Jobs) -> None:
        while True:
            while jobs.is_free and (task := self._next_task()) is not None:
                jobs.start(task)
            if not jobs.is_busy:
                return
            self._take(jobs.next())

    def _continue_booked(self) -> None:
        """Takes up the trials of an interrupted sweep: finished runs are read, and all that is missing is run again."""
        for booked in self._book.trials:
            if booked.stopped:
                name = name_of(self._trial(booked)[1])
                shutil.rmtree(partial_folder(self._execution.out, name), ignore_errors=True)
            else:
                booked.state, booked.failed, booked.value = "running", "", None
                self._queue(booked)
        # what is finished already is read at once, so that the search knows it
        for _ in range(len(self._waiting)):
            task = self._waiting.popleft()
            if not self._read_finished(task):
                self._waiting.append(task)

    def _next_task(self) -> RunTask | None:
        while True:
            if self._waiting:
                task = self._waiting.popleft()
            elif (search := self._next_search()) is not None:
                self._queue(self._book.begin(search.place, search.point(self._book.of(search.place))))
                continue
            else:
                return None
            if not self._read_finished(task):
                return task

    def _next_search(self) -> MethodSearch | None:
        """Returns the method whose next trial begins: the one with the fewest, if its budget allows another."""
        open_ones = [one for one in self._searches if self._has_room(one)]
        return min(open_ones, key=lambda one: len(self._book.of(one.place)), default=None)

    def _has_room(self, search: MethodSearch) -> bool:
        begun = self._book.of(search.place)
        if len(begun) >= search.most:
            return False
        if not self._plan.budget:
            return True
        spent = sum(self._cost(one) for one in begun)
        return spent + self._cost_of_next(search, len(begun)) <= self._plan.budget

    def _refuse_small_budget(self, search: MethodSearch) -> None:
        if self._plan.budget and (needed := self._cost_of_next(search, 0)) > self._plan.budget:
            raise UserError(
                f"the budget of {self._plan.budget} rounds is less than the {needed} that one trial of "
                f"{search.space.name} needs, with all its seeds; raise --budget or lower --rounds"
            )

    def _cost_of_next(self, search: MethodSearch, begun: int) -> int:
        """Returns the rounds that the next trial of a method needs for all its seeds."""
        whole = search.experiment(search.fixed[begun]).rounds if search.fixed else self._rounds(search)
        return whole * len(self._plan.seeds)

    def _rounds(self, search: MethodSearch) -> int:
        """Returns the most rounds that a trial of a Bayesian search may have."""
        axis = next((one for one in search.space.axes if one.written == "rounds"), None)
        if axis is not None:
            return int(max(axis.values) if axis.values else axis.high)
        return search.experiment(Trial(search.space.name, search.space.method, {}, {})).rounds

    def _cost(self, booked: BookedTrial) -> int:
        """Returns the rounds of a trial; one that runs or was refused counts whole."""
        return booked.stopped or self._trial(booked)[1].rounds * len(self._plan.seeds)

    def _trial(self, booked: BookedTrial) -> tuple[Trial, Experiment]:
        key = booked.method, booked.number
        if key not in self._made:
            search = self._searches[booked.method]
            trial = search.trial(booked)
            made = search.experiment(trial)
            self._made[key] = trial, with_public_samples(made, [made.method])
        return self._made[key]

    def _queue(self, booked: BookedTrial) -> None:
        """Queues the runs of a trial; where it may be stopped on its first seed, the others wait for that."""
        judged = self._plan.early_stop != "none"
        seeds = self._plan.seeds[:1] if judged else self._plan.seeds
        self._waiting.extend(self._task(booked, seed, judged) for seed in seeds)

    def _task(self, booked: BookedTrial, seed: int, judged: bool) -> RunTask:
        key = _RunKey(booked.method, booked.number, seed)
        return RunTask(key, replace(self._trial(booked)[1], seed=seed), judged=judged)

    def _read_finished(self, task: RunTask) -> bool:
        """Takes the result of a run that is finished already, or of a trial that is over; returns whether it was."""
        key = cast("_RunKey", task.key)
        if self._book.find(key.method, key.number).state != "running":
            return True
        if not finished(self._execution.out, name := name_of(task.experiment)):
            return False
        note_on_changes(
            task.experiment, name, self._execution.out, self._execution.data_dir
        )  # refuses other data
        self._take(RunResult(key, Path(self._execution.out) / name))
        return True

    def _judge(self, key: Hashable, round: int, value: float) -> bool:
        """Books a value of a running trial, and decides whether it stops; both are on disk before the run goes on."""
        place, number, _ = cast("_RunKey", key)
        booked, known = self._book.find(place, number), self._book.of(place)
        # a resumed run makes later rounds again
        earlier = {done: found for done, found in booked.curve.items() if done < round}
        booked.curve = {**earlier, round: value}
        rounds = self._trial(booked)[1].rounds
        if should_stop(self._plan.early_stop, known, booked, max(1, rounds // WARM_UP)):
            booked.state, booked.stopped, booked.rounds = "stopped", round, round
        self._book.save()
        return booked.stopped > 0

    def _take(self, result: RunResult) -> None:
        """Books what came of a run."""
        key = cast("_RunKey", result.key)
        booked = self._book.find(key.method, key.number)
        if result.stopped or booked.state == "refused":
            return
        if result.folder is None:
            self._refuse(booked, result.refused)
            return
        scores = self._scores.setdefault((key.method, key.number), {})
        try:
            scores[key.seed] = trial_scores(open_run(result.folder, data_dir=self._execution.data_dir))
        except UserError as error:
            self._refuse(booked, str(error))
            return
        seeds = self._plan.seeds
        if self._plan.early_stop != "none" and key.seed == seeds[0]:
            self._waiting.extendleft(self._task(booked, seed, False) for seed in reversed(seeds[1:]))
        if len(scores) == len(seeds):
            sign = 1 if scores[key.seed].metric.higher_is_better else -1
            value = sign * fmean(scores[seed].valid for seed in seeds)
            booked.state, booked.value, booked.rounds = "done", value, self._cost(booked)
            self._book.save()

    def _refuse(self, booked: BookedTrial, sentence: str) -> None:
        self._execution.watcher.say(f"refused: {label(self._trial(booked)[1].method)}: {sentence}")
        booked.state, booked.failed, booked.rounds = "refused", sentence, self._cost(booked)
        self._book.save()

    def experiment(self, one: TrialResult) -> Experiment:
        """Returns the experiment of a trial, with the seed that all trials begin with."""
        return next(
            made
            for (_, number), (trial, made) in self._made.items()
            if (trial.name, number, made.method) == (one.name, one.number, one.method)
        )

    def _results(self) -> list[TrialResult]:
        metrics = [score.metric for scores in self._scores.values() for score in scores.values()]
        metric = metrics[0] if metrics else ACCURACY
        return [self._result(one, metric) for search in self._searches for one in self._book.of(search.place)]

    def _result(self, booked: BookedTrial, metric: JudgedMetric) -> TrialResult:
        trial, made = self._trial(booked)
        varied = {**trial.options, **trial.settings}
        setting = ", ".join(f"{key}={value}" for key, value in varied.items()) or "as it is"
        facts: dict[str, Any] = {"varied": varied, "number": booked.number, "rounds": booked.rounds}
        if booked.failed:
            return TrialResult(trial.name, setting, made.method, failed=booked.failed, **facts)
        if booked.stopped:
            last = booked.curve[max(booked.curve)] * (1 if metric.higher_is_better else -1)
            return TrialResult(
                trial.name, setting, made.method, 1, last, metric=metric, stopped=booked.stopped, **facts
            )
        by_seed = self._scores[booked.method, booked.number]
        scores = [by_seed[seed] for seed in self._plan.seeds]
        valid, test, server = (fmean(column) for column in zip(*(one[:3] for one in scores), strict=True))
        numbers = (len(scores), valid, test, server)
        return TrialResult(trial.name, setting, made.method, *numbers, metric=scores[0].metric, **facts)
