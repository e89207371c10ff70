"""A progress bar on a terminal, drawn by Rich."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from idiolect.experiments.progress_watcher import written_numbers

__all__ = ["ProgressBar"]


class RateColumn(ProgressColumn):
    """Rounds per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("- rounds/s" if speed is None else f"{speed:.2f} rounds/s", style="cyan")


class ProgressBar:
    """A watcher that draws a progress bar.

    Args:
        console: a terminal; that of standard error by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._runs, self._started = 1, 0
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def expect(self, runs: int) -> None:
        self._runs, self._started = runs, 0

    def begin(self, label: str, rounds: int, done: int) -> None:
        self._started += 1
        title = f"{label} ({self._started}/{self._runs})" if self._runs > 1 else label
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            RateColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=self.console,
        )
        self._task = self._progress.add_task(title, total=rounds, completed=done, numbers="")
        self._progress.start()

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(
                self._task, completed=rounds_done, numbers=" ".join(written_numbers(numbers))
            )

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = None

    def say(self, sentence: str) -> None:
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def hint(self, sentence: str) -> None:
        self.say(sentence)
