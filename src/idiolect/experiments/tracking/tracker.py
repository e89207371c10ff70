"""What a tracker is, and how one is opened by its name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from idiolect.errors import UserError, refuse_unknown_choice

__all__ = ["TRACKERS", "Tracker", "open_tracker"]

TRACKERS = ("tensorboard", "mlflow")


class Tracker(Protocol):
    """Somebody who wants a run's numbers while it goes on."""

    def begin(self, name: str, manifest: Mapping[str, Any], done: int) -> None:
        """A run starts, or goes on after ``done`` rounds; what was told of later rounds is told again."""

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Numbers by name, measured after ``round`` rounds."""

    def end(self, status: str) -> None:
        """The run is ``finished``, ``failed`` or ``stopped``."""


def open_tracker(name: str, out: Path) -> Tracker:
    """The tracker of that name, writing below ``out``.

    Raises:
        UserError: there is none of that name, or its package is not installed.
    """
    refuse_unknown_choice("log", name, TRACKERS)
    try:
        room = import_module(f"idiolect.experiments.tracking.to_{name}")
    except ModuleNotFoundError as error:
        raise UserError(
            f"logging to {name} needs the package {error.name}; install it with: pip install 'idiolect[tracking]'"
        ) from error
    tracker: Tracker = room.open_tracker(out)
    return tracker
