"""Progress of runs: the watcher that receives it, one that writes lines into a log, and one that ignores it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol, TextIO, cast

from idiolect.experiments.progress.time_left import RunTimes

__all__ = [
    "CountedRuns",
    "Lane",
    "ProgressLines",
    "Silent",
    "Watcher",
    "for_several",
    "progress_on_stderr",
    "tell",
    "written_duration",
    "written_numbers",
]

QUIET = 5.0  # seconds without a line, so that short runs write nothing
LONGEST = 60.0  # seconds between two lines, as far as rounds are shorter
PARTS = 10  # lines of a run whose rounds are done sooner
SHOWN = {"loss": "{:.3f}", "global": "{:.1%}", "personal": "{:.1%}"}  # other numbers name their metric


class Watcher(Protocol):
    """Receives the progress of runs.

    A watcher may also have ``ending(rounds)``, which is told how many rounds' work the stages at the end of the run
    are, ``settle(done, total)``, which is told how many of these are done, and ``lane(number)``, which returns a
    watcher for one of several runs side by side.
    """

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
        """Receives a sentence for a user who is watching, such as on a terminal; once is enough."""


def tell(watcher: Watcher, what: str, *facts: Any) -> None:
    """Tells a watcher something that not every watcher wants to know."""
    if (listen := getattr(watcher, what, None)) is not None:
        listen(*facts)


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


class SeveralRuns(Protocol):
    """A watcher that can show several runs at a time, each in a lane."""

    def expect(self, runs: int, side_by_side: int = 1) -> None: ...

    def lane(self, number: int) -> Watcher: ...

    def begin(self, label: str, rounds: int, done: int, lane: int = 0) -> None: ...

    def advance(self, rounds_done: int, numbers: dict[str, float], lane: int = 0) -> None: ...

    def ending(self, rounds: float, lane: int = 0) -> None: ...

    def settle(self, done: int, total: int, lane: int = 0) -> None: ...

    def end(self, lane: int = 0) -> None: ...

    def say(self, sentence: str) -> None: ...

    def hint(self, sentence: str) -> None: ...


@dataclass(frozen=True)
class Lane:
    """The watcher of one of several runs side by side."""

    whole: SeveralRuns
    number: int

    def expect(self, runs: int) -> None:
        """Ignores it: the whole is told."""

    def begin(self, label: str, rounds: int, done: int) -> None:
        self.whole.begin(label, rounds, done, self.number)

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        self.whole.advance(rounds_done, numbers, self.number)

    def ending(self, rounds: float) -> None:
        self.whole.ending(rounds, self.number)

    def settle(self, done: int, total: int) -> None:
        self.whole.settle(done, total, self.number)

    def end(self) -> None:
        self.whole.end(self.number)

    def say(self, sentence: str) -> None:
        self.whole.say(sentence)

    def hint(self, sentence: str) -> None:
        self.whole.hint(sentence)


class CountedRuns(Silent):
    """Shows runs side by side to a watcher that knows one run at a time, as one run whose rounds are finished runs."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher, self._done = watcher, 0

    def expect(self, runs: int, side_by_side: int = 1) -> None:
        self._watcher.expect(1)
        self._watcher.begin("all runs", runs, 0)

    def lane(self, number: int) -> CountedRuns:
        return self

    def begin(self, label: str, rounds: int, done: int, lane: int = 0) -> None:
        """Ignores it: runs are counted when they end."""

    def advance(self, rounds_done: int, numbers: dict[str, float], lane: int = 0) -> None:
        """Ignores it."""

    def ending(self, rounds: float, lane: int = 0) -> None:
        """Ignores it."""

    def settle(self, done: int, total: int, lane: int = 0) -> None:
        """Ignores it."""

    def end(self, lane: int = 0) -> None:
        self._done += 1
        self._watcher.advance(self._done, {})

    def say(self, sentence: str) -> None:
        self._watcher.say(sentence)

    def hint(self, sentence: str) -> None:
        self._watcher.hint(sentence)


def for_several(watcher: Watcher) -> SeveralRuns:
    """Returns a watcher of several runs side by side, which tells ``watcher``."""
    return cast("SeveralRuns", watcher) if hasattr(watcher, "lane") else CountedRuns(watcher)


@dataclass
class _LineState:
    label: str
    rounds: int
    shown: int
    shown_of_end: int = 0


class ProgressLines:
    """A watcher that writes lines of plain text, for log files and notebooks.

    A run gets a line at every tenth of its rounds and of its end, at least five seconds after the line before, and one
    a minute where that comes first.  Work that is done in five seconds writes nothing but what must be said.

    Args:
        stream: where the lines go; standard error by default.
        now: the clock, in seconds.
    """

    def __init__(self, stream: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._now = stream, now
        self._times = RunTimes(now)
        self._runs: dict[int, _LineState] = {}
        self._hinted: set[str] = set()
        self._written = now()

    def expect(self, runs: int, side_by_side: int = 1) -> None:
        self._times.expect(runs, side_by_side)

    def lane(self, number: int) -> Lane:
        return Lane(self, number)

    def begin(self, label: str, rounds: int, done: int, lane: int = 0) -> None:
        if self._times.begun == 0:
            self._written = self._now()
        self._times.begin(lane, rounds, done)
        several = self._times.runs > 1
        title = f"{label} ({self._times.begun}/{self._times.runs})" if several else label
        self._runs[lane] = _LineState(title, rounds, done)

    def advance(self, rounds_done: int, numbers: dict[str, float], lane: int = 0) -> None:
        if (run := self._runs.get(lane)) is None:
            return
        self._times.advance(lane, rounds_done)
        if self._is_due(PARTS * rounds_done // run.rounds > PARTS * run.shown // run.rounds):
            run.shown = rounds_done
            self._write_of(lane, [f"round {rounds_done}/{run.rounds}", *written_numbers(numbers)])

    def ending(self, rounds: float, lane: int = 0) -> None:
        self._times.ending(lane, rounds)

    def settle(self, done: int, total: int, lane: int = 0) -> None:
        self._times.settle(lane, done / total)
        if (run := self._runs.get(lane)) is None:
            return
        if self._is_due(PARTS * done // total > run.shown_of_end):
            run.shown_of_end = PARTS * done // total
            self._write_of(lane, [f"end of the run {done / total:.0%}"])

    def end(self, lane: int = 0) -> None:
        self._times.end(lane)
        self._runs.pop(lane, None)

    def say(self, sentence: str) -> None:
        self._write(sentence)

    def hint(self, sentence: str) -> None:
        if sentence not in self._hinted and self._times.begun and self._now() - self._written >= QUIET:
            self._hinted.add(sentence)
            self._write(sentence)

    def _is_due(self, is_tenth: bool) -> bool:
        since = self._now() - self._written
        return since >= LONGEST or (is_tenth and since >= QUIET)

    def _write_of(self, lane: int, facts: list[str]) -> None:
        """Writes a line about a run: what is done, the time it took, and the time left of it and of all runs."""
        parts = [*facts, f"{written_duration(self._times.elapsed(lane))} elapsed"]
        left, all_left = self._times.left(lane), self._times.left_of_all()
        if left:
            parts.append(f"about {written_duration(left)} left")
        if self._times.runs > 1 and all_left:
            parts.append(f"{written_duration(all_left)} for all {self._times.runs} runs")
        self._write(f"{self._runs[lane].label}: {', '.join(parts)}")

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
    """Returns a progress bar where standard error is a terminal, or a notebook can draw one, and lines elsewhere."""
    if (sys.stderr is not None and sys.stderr.isatty()) or _notebook_draws():
        from idiolect.experiments.progress.progress_bar import ProgressBar  # noqa: PLC0415 - Rich is not needed for lines

        return ProgressBar()
    return ProgressLines()


def _notebook_draws() -> bool:
    """Whether this is a notebook with the package of widgets, which Rich needs to draw a bar there."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell" and find_spec("ipywidgets") is not None
