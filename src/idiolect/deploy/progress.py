"""The progress file of a deployment, which the server writes and its status command reads."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from idiolect.deploy.audit import AuditLog
from idiolect.records.atomic_files import write_atomically

__all__ = ["PROGRESS_FILE", "DeploymentProgress", "read_progress"]

PROGRESS_FILE = "progress.json"
MAX_EVENTS = 200  # that are kept


@dataclass
class DeploymentProgress:
    """How far a run is and what each site does; the file is written whole after every change.

    Args:
        rounds: of the whole run.
        round: rounds completed.
        folder_of_run: where the finished record will be.
        seconds: that each round took.
        sites: by name, what it does now, the last round it took part in, its loss, and what it is judged by.
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
        """Notes what a site did, or what happened at the server where ``site`` is empty."""
        if site:
            self.sites.setdefault(site, {})["now"] = what
        if what not in ("asked", "answered"):
            self.events = [*self.events, f"round {self.round + 1}: {site} {what}".strip()][-MAX_EVENTS:]
            self.audit("site" if site else "server", site=site, what=what)
        self.save()

    def note(self, site: str, **facts: Any) -> None:
        """Notes facts about a site; ``save`` writes them."""
        self.sites.setdefault(site, {}).update(facts)

    def complete_round(self, round: int, seconds: float) -> None:
        """Notes that ``round`` rounds are completed, the last of them in ``seconds``."""
        self.round = round
        self.seconds.append(seconds)
        used = sorted(name for name, site in self.sites.items() if site.get("round") == round)
        self.audit("round", used=used)
        self.save()

    def audit(self, event: str, **facts: Any) -> None:
        """Adds a line to the deployment's audit log, with the round now, or for a run those completed."""
        AuditLog(self.folder).append(event, {"round": self.round + (event in ("site", "server")), **facts})

    def save(self) -> None:
        written = {key: value for key, value in vars(self).items() if key != "folder"}
        text = json.dumps({**written, "pid": os.getpid(), "at": time.time()}, indent=1)
        write_atomically(self.folder / PROGRESS_FILE, text)


def read_progress(folder: Path) -> dict[str, Any] | None:
    """Returns the content of the progress file, or None where there is none that can be read."""
    try:
        found: dict[str, Any] = json.loads((folder / PROGRESS_FILE).read_text())
    except (OSError, ValueError):
        return None
    return found
