"""Estimates how long runs will still take, from the rounds that they have made so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

__all__ = ["RunTimes"]


@dataclass
class _RunTime:
    """Where one run stands.

    Args:
        first: rounds that were done when it began, or continued.
        end_work: work of the stages at the end of the run, in rounds.
        mark: time and rounds of the first report, which the rate leaves out: the first round starts workers.
    """

    rounds: int
    first: int
    began: float
    done: int
    seen: float
    end_work: float = 0.0
    mark: tuple[float, int] | None = None
    end_began: float | None = None
    end_share: float = 0.0

    def seconds_per_round(self) -> float | None:
        if self.done == self.first or self.mark is None:
            return None
        time_of_mark, rounds_of_mark = self.mark
        if self.done > rounds_of_mark:
            return (self.seen - time_of_mark) / (self.done - rounds_of_mark)
        return (self.seen - self.began) / (self.done - self.first)

    def left(self, now: float) -> float | None:
        """Returns the seconds that the run will still take; None where nothing is known yet."""
        each = self.seconds_per_round()
        if self.end_began is not None and self.end_share > 0:
            last = (self.seen - self.end_began) / self.end_share * (1 - self.end_share)
        elif each is None:
            return None
        else:
            last = each * (self.rounds - self.done + self.end_work)
        return max(last - (now - self.seen), 0.0)

    def before(self) -> float:
        """Returns the seconds of the rounds that were done when a continued run began, at the rate of its own."""
        return self.first * (self.seconds_per_round() or 0.0)

    def whole(self, now: float) -> float | None:
        """Returns the seconds of the whole run, had it begun with its first round."""
        left = self.left(now)
        return None if left is None else self.before() + now - self.began + left


class RunTimes:
    """The times of several runs, one after the other or side by side.

    Args:
        now: the clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.expect(1)

    def expect(self, runs: int, side_by_side: int = 1) -> None:
        """So many runs follow; ``side_by_side`` of them at a time."""
        self.runs, self._side_by_side, self.begun = runs, side_by_side, 0
        self._running: dict[int, _RunTime] = {}
        self._took: list[float] = []

    def begin(self, lane: int, rounds: int, done: int) -> None:
        now = self.now()
        self.begun += 1
        self._running[lane] = _RunTime(rounds, done, now, done, now)

    def ending(self, lane: int, rounds: float) -> None:
        """The stages at the end of the run are as much work as so many rounds."""
        if lane in self._running:
            self._running[lane].end_work = rounds

    def advance(self, lane: int, done: int) -> None:
        if (run := self._running.get(lane)) is not None and done > run.done:
            run.done, run.seen = done, self.now()
            run.mark = run.mark or (run.seen, done)

    def settle(self, lane: int, share: float) -> None:
        """A share of the stages at the end of the run is done."""
        if (run := self._running.get(lane)) is not None:
            run.end_began = self.now() if run.end_began is None else run.end_began
            run.end_share, run.seen = share, self.now()

    def end(self, lane: int) -> None:
        if (run := self._running.pop(lane, None)) is not None and run.done > run.first:
            self._took.append(run.before() + self.now() - run.began)

    def elapsed(self, lane: int) -> float:
        return self.now() - self._running[lane].began if lane in self._running else 0.0

    def rate(self, lane: int) -> float | None:
        """Returns rounds per second."""
        each = self._running[lane].seconds_per_round() if lane in self._running else None
        return 1 / each if each else None

    def left(self, lane: int) -> float | None:
        """Returns the seconds that the run of a lane will still take."""
        return self._running[lane].left(self.now()) if lane in self._running else None

    @property
    def finished(self) -> int:
        return self.begun - len(self._running)

    def left_of_all(self) -> float | None:
        """Returns the seconds that all runs together will still take; those to come take the mean of the others."""
        now = self.now()
        present = [left for run in self._running.values() if (left := run.left(now)) is not None]
        known = self._took + [
            whole for run in self._running.values() if (whole := run.whole(now)) is not None
        ]
        if not known:
            return None
        to_come = max(self.runs - self.begun, 0)
        unknown = len(self._running) - len(present)
        work = sum(present) + (to_come + unknown) * fmean(known)
        lanes = max(1, min(self._side_by_side, to_come + len(self._running)))
        return max([work / lanes, *present])
