"""A progress bar on a terminal, drawn by Rich: a line for each running run, and one for all of them."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from idiolect.experiments.progress.time_left import RunTimes
from idiolect.experiments.progress.watcher import Lane, written_duration, written_numbers

__all__ = ["ProgressBar"]

ALL = -1  # the lane of the line for all runs


class RateColumn(ProgressColumn):
    """Rounds per second."""

    def __init__(self, times: RunTimes) -> None:
        super().__init__()
        self._times = times

    def render(self, task: Task) -> Text:
        rate = self._times.rate(task.fields["lane"])
        if task.fields["lane"] == ALL:
            return Text("")
        return Text("- rounds/s" if rate is None else f"{rate:.2f} rounds/s", style="cyan")


class TimesColumn(ProgressColumn):
    """The time that a run has taken and will still take; that of all runs in the line for all."""

    def __init__(self, times: RunTimes) -> None:
        super().__init__()
        self._times = times

    def render(self, task: Task) -> Text:
        lane = task.fields["lane"]
        left = self._times.left_of_all() if lane == ALL else self._times.left(lane)
        words = [] if lane == ALL else [f"{written_duration(self._times.elapsed(lane))} elapsed"]
        words += [] if left is None else [f"{written_duration(left)} left"]
        return Text(", ".join(words), style="yellow")


@dataclass
class _BarState:
    task: TaskID
    title: str
    rounds: int
    done: int
    numbers: str = ""


class ProgressBar:
    """A watcher that draws progress bars.

    Args:
        console: a terminal; that of standard error by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._times = RunTimes()
        self._runs: dict[int, _BarState] = {}
        self._progress: Progress | None = None
        self._all: TaskID | None = None
        self._hinted: set[str] = set()

    def expect(self, runs: int, side_by_side: int = 1) -> None:
        self._times.expect(runs, side_by_side)

    def lane(self, number: int) -> Lane:
        return Lane(self, number)

    def begin(self, label: str, rounds: int, done: int, lane: int = 0) -> None:
        self._times.begin(lane, rounds, done)
        runs = self._times.runs
        title = f"{label} ({self._times.begun}/{runs})" if runs > 1 else label
        progress = self._shown()
        task = progress.add_task(title, total=rounds, completed=done, count="", numbers="", lane=lane)
        self._runs[lane] = _BarState(task, title, rounds, done)
        self.advance(done, {}, lane)

    def advance(self, rounds_done: int, numbers: dict[str, float], lane: int = 0) -> None:
        if (run := self._runs.get(lane)) is None or self._progress is None:
            return
        self._times.advance(lane, rounds_done)
        run.done, run.numbers = rounds_done, " ".join(written_numbers(numbers))
        count = f"{rounds_done}/{run.rounds}"
        self._progress.update(run.task, completed=rounds_done, count=count, numbers=run.numbers)

    def ending(self, rounds: float, lane: int = 0) -> None:
        self._times.ending(lane, rounds)

    def settle(self, done: int, total: int, lane: int = 0) -> None:
        self._times.settle(lane, done / total)
        if (run := self._runs.get(lane)) is not None and self._progress is not None:
            title, count = f"{run.title}: end of the run", f"{done / total:.0%}"
            self._progress.update(run.task, description=title, total=total, completed=done, count=count)

    def end(self, lane: int = 0) -> None:
        """Leaves one line about the run, and draws no more once no run is left."""
        run = self._runs.pop(lane, None)
        if run is None or self._progress is None:
            return
        rate = self._times.rate(lane)
        words = [run.title, f"{run.done}/{run.rounds}", "" if rate is None else f"{rate:.2f} rounds/s"]
        words += [written_duration(self._times.elapsed(lane)), run.numbers]
        self._times.end(lane)
        self._progress.remove_task(run.task)
        if self._all is not None:
            done = self._times.finished
            self._progress.update(self._all, completed=done, count=f"{done}/{self._times.runs}")
        if not self._runs:
            self._progress.stop()
            self._progress = self._all = None
        self.say("  ".join(word for word in words if word))

    def say(self, sentence: str) -> None:
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def hint(self, sentence: str) -> None:
        if sentence not in self._hinted:
            self._hinted.add(sentence)
            self.say(sentence)

    def _shown(self) -> Progress:
        """Returns the display, which is begun with the first run, with a line for all runs where there are several."""
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.fields[count]}"),
                RateColumn(self._times),
                TimesColumn(self._times),
                TextColumn("{task.fields[numbers]}"),
                console=self.console,
                transient=True,
            )
            runs, done = self._times.runs, self._times.finished
            if runs > 1:
                self._all = self._progress.add_task(
                    "all runs", total=runs, completed=done, count=f"{done}/{runs}", numbers="", lane=ALL
                )
            self._progress.start()
        return self._progress
