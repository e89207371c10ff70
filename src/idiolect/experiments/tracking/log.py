"""A run's log: trackers such as TensorBoard and MLflow receive the numbers of every round, and how the run ended."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.experiments.simulated_clients import Simulation

__all__ = ["TRACKERS", "Log", "Tracker", "open_log"]

TRACKERS = ("tensorboard", "mlflow")
COSTS = ("train_loss", "seconds", "bytes_down", "bytes_up")
KEYS = ["split", "population", "moment", "predictor", "metric"]


class Tracker(Protocol):
    """Receives a run's numbers while the run goes on."""

    def begin(self, name: str, manifest: Mapping[str, Any], done: int) -> None:
        """A run starts, or continues after ``done`` rounds; the numbers of later rounds are logged again."""

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Logs numbers by name, measured after ``round`` rounds."""

    def end(self, status: str) -> None:
        """The run is ``finished``, ``failed`` or ``stopped``."""


class Log:
    """Gives the trackers of one run the numbers that are new.

    Args:
        trackers: without any, every call returns at once.
    """

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = trackers
        self._rows = self._rounds = 0

    def before(self, simulation: Simulation) -> None:
        """Notes which numbers are known already; a checkpoint removes them from the simulation."""
        self._rows, self._rounds = len(simulation.rows), len(simulation.rounds)

    def after(self, simulation: Simulation) -> None:
        """Logs the numbers that were added since ``before``."""
        if not self._trackers:
            return
        numbers = _numbers_of(
            simulation.rounds.table().slice(self._rounds), simulation.rows.table().slice(self._rows)
        )
        for tracker in self._trackers:
            tracker.log(simulation.round, numbers)

    @contextmanager
    def of_run(self, name: str, manifest: Mapping[str, Any], done: int) -> Iterator[None]:
        """Opens the run at the trackers, and closes it with its status however it ends."""
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
    """Opens a log to the trackers of those names, which write below ``out``.

    Raises:
        UserError: a tracker is unknown, not installed, or cannot be opened.
    """
    return Log([_open_tracker(name, Path(out)) for name in dict.fromkeys(names)])


def _open_tracker(name: str, out: Path) -> Tracker:
    refuse_unknown_choice("log", name, TRACKERS)
    try:
        module = import_module(f"idiolect.experiments.tracking.{name}_tracker")
    except ModuleNotFoundError as error:
        raise UserError(
            f"logging to {name} needs the package {error.name}; install it with: pip install 'idiolect[tracking]'"
        ) from error
    tracker: Tracker = module.open_tracker(out)
    return tracker


def _numbers_of(rounds: pa.Table, rows: pa.Table) -> dict[str, float]:
    """Returns what a round cost, as `round/...`, and the means over clients of what was measured after it.

    A mean is called `<split>/<population>/<moment>/<predictor>/<metric>`, as `test/all/before/companion/accuracy`;
    what was picked on test data keeps the word oracle: `test/all/before/mix-oracle/accuracy`.

    Args:
        rounds: the row of the round; empty where it was logged before.
        rows: measurements.
    """
    found = {f"round/{name}": float(line[name]) for line in rounds.to_pylist() for name in COSTS}
    means = rows.to_pandas().dropna(subset="value").groupby(KEYS, sort=False)["value"].mean()
    return found | {"/".join(map(_plain, keys)): float(mean) for keys, mean in means.items()}


def _plain(word: str) -> str:
    """Returns the word with letters, digits, `.`, `_` and `-` only, which every tracker takes in a name.

    >>> _plain("mix(0.5)"), _plain("teacher round")
    ('mix-0.5', 'teacher-round')
    """
    return re.sub(r"[^\w.]+", "-", word).strip("-")
