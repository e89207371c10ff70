"""How far a deployment is, in a file that anyone on the server may look at."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from idiolect.records.atomic_files import write_atomically

__all__ = ["PROGRESS", "Progress", "read_progress"]

PROGRESS = "progress.json"
EVENTS = 200  # that are kept


@dataclass
class Progress:
    """Written whole after every change.

    Args:
        sites: by name: what it does now, the last round it took part in, its loss and accuracy.
        events: what happened, the latest last.
    """

    folder: Path
    rounds: int
    round: int = 0
    status: str = "running"
    message: str = ""
    folder_of_run: str = ""
    seconds: list[float] = field(default_factory=list)
    sites: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)

    def heard(self, site: str, what: str) -> None:
        """Something that a site did."""
        if site:
            self.sites.setdefault(site, {})["now"] = what
        if what not in ("asked", "answered"):
            self.events = [*self.events, f"round {self.round + 1}: {site} {what}".strip()][-EVENTS:]
        self.save()

    def note(self, site: str, **facts: Any) -> None:
        self.sites.setdefault(site, {}).update(facts)

    def save(self) -> None:
        written = {key: value for key, value in vars(self).items() if key != "folder"}
        text = json.dumps({**written, "pid": os.getpid(), "at": time.time()}, indent=1)
        write_atomically(self.folder / PROGRESS, text)


def read_progress(folder: Path) -> dict[str, Any] | None:
    try:
        return json.loads((folder / PROGRESS).read_text())
    except (OSError, ValueError):
        return None
