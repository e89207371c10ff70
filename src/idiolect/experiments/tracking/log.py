"""A run's log: every tracker is told each round's numbers, and how the run ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from idiolect.experiments.simulation import Simulation
from idiolect.experiments.tracking.numbers import numbers_of
from idiolect.experiments.tracking.tracker import Tracker, open_tracker

__all__ = ["Log", "open_log"]


class Log:
    """Tells the trackers of one run what is new since they were last told.

    Args:
        trackers: none makes every call free.
    """

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = trackers
        self._rows = self._rounds = 0

    def before(self, simulation: Simulation) -> None:
        """Notes what is known already; a checkpoint takes it away."""
        self._rows, self._rounds = len(simulation.rows), len(simulation.rounds)

    def after(self, simulation: Simulation) -> None:
        """Tells what was added since ``before``."""
        if not self._trackers:
            return
        numbers = numbers_of(
            simulation.rounds.table().slice(self._rounds), simulation.rows.table().slice(self._rows)
        )
        for tracker in self._trackers:
            tracker.log(simulation.round, numbers)

    @contextmanager
    def of_run(self, name: str, manifest: Mapping[str, Any], done: int) -> Iterator[None]:
        """The time between the first round and the end of the run, however it ends."""
        for tracker in self._trackers:
            tracker.begin(name, manifest, done)
        status = "failed"
        try:
            yield
            status = "finished"
        except KeyboardInterrupt:
            status = "stopped"
            raise
        finally:
            for tracker in self._trackers:
                tracker.end(status)


def open_log(names: Sequence[str], out: str | Path) -> Log:
    """A log to the trackers of those names, which write below ``out``.

    Raises:
        UserError: a tracker is unknown or not installed.
    """
    return Log([open_tracker(name, Path(out)) for name in dict.fromkeys(names)])
