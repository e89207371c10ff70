"""Progress of runs: the watcher that receives it, one that writes lines into a log, and one that ignores it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TextIO

__all__ = ["ProgressLines", "Silent", "Watcher", "progress_on_stderr", "written_duration", "written_numbers"]

QUIET = 5.0  # seconds without a line, so that short runs write nothing
LONGEST = 60.0  # seconds between two lines, as far as rounds are shorter
PARTS = 10  # lines of a run whose rounds are done sooner
SHOWN = {"loss": "{:.3f}", "global": "{:.1%}", "personal": "{:.1%}"}  # other numbers name their metric


class Watcher(Protocol):
    """Receives the progress of runs."""

    def expect(self, runs: int) -> None:
        """So many runs follow each other."""

    def begin(self, label: str, rounds: int, done: int) -> None:
        """A run starts, or continues after ``done`` rounds."""

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        """A round is over; ``numbers`` are the current loss and accuracies."""

    def end(self) -> None:
        """The run is over."""

    def say(self, sentence: str) -> None:
        """Receives a sentence that the user should read in any case."""

    def hint(self, sentence: str) -> None:
        """Receives a sentence for a user who is watching, such as on a terminal."""


class Silent:
    """A watcher that ignores everything."""

    def expect(self, runs: int) -> None:
        pass

    def begin(self, label: str, rounds: int, done: int) -> None:
        pass

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        pass

    def end(self) -> None:
        pass

    def say(self, sentence: str) -> None:
        pass

    def hint(self, sentence: str) -> None:
        pass


class ProgressLines:
    """A watcher that writes lines of plain text, for log files and notebooks.

    A run gets a line at every tenth of its rounds, at least five seconds after the line before, and one a minute where
    that comes first.  Work that is done in five seconds writes nothing but what must be said.

    Args:
        stream: where the lines go; standard error by default.
        now: the clock, in seconds.
    """

    def __init__(self, stream: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._now = stream, now
        self._runs, self._started = 1, 0
        self._label, self._rounds, self._first, self._shown = "", 0, 0, 0
        self._began = self._written = now()

    def expect(self, runs: int) -> None:
        self._runs, self._started = runs, 0

    def begin(self, label: str, rounds: int, done: int) -> None:
        if self._started == 0:
            self._written = self._now()
        self._started += 1
        self._label = f"{label} ({self._started}/{self._runs})" if self._runs > 1 else label
        self._rounds, self._first, self._shown, self._began = rounds, done, done, self._now()

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        since = self._now() - self._written
        tenth = PARTS * rounds_done // self._rounds > PARTS * self._shown // self._rounds
        if since >= LONGEST or (tenth and since >= QUIET):
            self._shown = rounds_done
            self._write(self._line(rounds_done, numbers))

    def end(self) -> None:
        pass

    def say(self, sentence: str) -> None:
        self._write(sentence)

    def hint(self, sentence: str) -> None:
        if self._started and self._now() - self._written >= QUIET:
            self._write(sentence)

    def _line(self, done: int, numbers: dict[str, float]) -> str:
        elapsed = self._now() - self._began
        parts = [f"{self._label}: round {done}/{self._rounds}", *written_numbers(numbers)]
        parts.append(f"{written_duration(elapsed)} elapsed")
        if self._first < done < self._rounds:
            left = elapsed / (done - self._first) * (self._rounds - done)
            parts.append(f"about {written_duration(left)} left")
        return ", ".join(parts)

    def _write(self, sentence: str) -> None:
        self._written = self._now()
        with suppress(OSError, ValueError):  # a log that is closed stops no run
            print(sentence, file=self._stream or sys.stderr, flush=True)


def written_numbers(numbers: dict[str, float]) -> list[str]:
    """Writes the current numbers of a run, each with its name.

    >>> written_numbers({"loss": 1.25, "personal": 0.75})
    ['loss 1.250', 'personal 75.0%']
    """
    return [f"{name} {SHOWN.get(name, '{:.4g}').format(value)}" for name, value in numbers.items()]


def written_duration(seconds: float) -> str:
    """Writes a duration in its two largest units.

    >>> written_duration(7.4), written_duration(90), written_duration(7500)
    ('7 s', '1 min 30 s', '2 h 5 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def progress_on_stderr() -> Watcher:
    """Returns a progress bar where standard error is a terminal, and lines elsewhere."""
    if sys.stderr is not None and sys.stderr.isatty():
        from idiolect.experiments.progress_bar import ProgressBar  # noqa: PLC0415 - Rich is not needed for lines

        return ProgressBar()
    return ProgressLines()
