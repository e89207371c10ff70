"""A run's log: TensorBoard, MLflow or Weights & Biases receive the numbers of every round, and the record."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.experiments.rounds.early_stopping import StoppedEarly
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.records import Run
from idiolect.reports import write_report

__all__ = ["TRACKERS", "Log", "Tracker", "open_log"]

EXTRAS = {"tensorboard": "tracking", "mlflow": "tracking", "wandb": "wandb"}
TRACKERS = tuple(EXTRAS)
REPORT = ("*.png", "*.md", "*.csv", "*.html")
COSTS = ("train_loss", "seconds", "bytes_down", "bytes_up")
KEYS = ["split", "population", "moment", "predictor", "metric"]


class Tracker(Protocol):
    """Receives a run's numbers while the run goes on."""

    def begin(self, name: str, manifest: Mapping[str, Any], done: int) -> None:
        """A run starts, or continues after ``done`` rounds; the numbers of later rounds are logged again."""

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Logs numbers by name, measured after ``round`` rounds."""

    def keep(self, files: Mapping[str, Path]) -> None:
        """Keeps copies of files by name; a name may hold slashes."""

    def end(self, status: str) -> None:
        """The run is ``finished``, ``failed`` or ``stopped``."""

    def keep_comparison(self, name: str, files: Mapping[str, Path]) -> None:
        """Keeps the report of several runs under a name of its own."""

    @property
    def look(self) -> str:
        """How to look at what was logged: the program's name, and a command or an address."""


class Log:
    """Gives the trackers of one run the numbers that are new.

    Args:
        trackers: without any, every call returns at once.
    """

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = trackers
        self._begun: list[Tracker] = []
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

    def begin(self, name: str, manifest: Mapping[str, Any], done: int) -> None:
        """Opens a run at the trackers; it continues after ``done`` rounds."""
        for tracker in self._trackers:
            tracker.begin(name, manifest, done)
            self._begun.append(tracker)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Closes the run at the trackers where it began, with its status, however the block ends."""
        status = "failed"
        try:
            yield
            status = "finished"
        except (KeyboardInterrupt, StoppedEarly):
            status = "stopped"
            raise
        finally:
            while self._begun:
                self._begun.pop().end(status)

    def keep(self, done: Run) -> None:
        """Gives the trackers the record of a finished run, and its table and pictures.

        The files of the record are called record.*, because copies must not look like a run.
        """
        if not self._trackers or done.folder is None:
            return
        with tempfile.TemporaryDirectory() as scratch:
            with suppress(UserError):  # a record without the numbers of a report is kept alone
                write_report([done], scratch)
            record = {
                f"record.{name}": done.folder / name for name in ("manifest.json", *done.manifest["sha256"])
            }
            files = record | _files(Path(scratch), REPORT, "report/")
            for tracker in self._trackers:
                tracker.keep(files)

    def keep_comparison(self, folder: Path) -> None:
        """Gives the trackers the report of a comparison, which lies in ``folder``."""
        files = _files(folder, REPORT)
        for tracker in self._trackers:
            tracker.keep_comparison(folder.name, files)

    @property
    def look(self) -> list[str]:
        """How to look at what each tracker has."""
        return [tracker.look for tracker in self._trackers]


def _files(folder: Path, patterns: Sequence[str], under: str = "") -> dict[str, Path]:
    found = sorted(path for pattern in patterns for path in folder.glob(pattern))
    return {f"{under}{path.name}": path for path in found}


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
            f"logging to {name} needs the package {error.name}; install it with: pip install "
            f"'idiolect[{EXTRAS[name]}]'"
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
