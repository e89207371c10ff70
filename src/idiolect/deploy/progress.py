"""The progress file of a deployment, which the server writes and its status command reads."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from idiolect.deploy.audit import AuditLog
from idiolect.deploy.processes import start_of_process
from idiolect.records import read_json_object, write_atomically

__all__ = ["PROGRESS_FILE", "DeploymentProgress", "read_progress", "writer_is_alive"]

PROGRESS_FILE = "progress.json"
MAX_EVENTS = 200  # that are kept
MOST = 1e30  # of a number in the file; larger ones are damage
KINDS = {
    **dict.fromkeys(("status", "message", "folder_of_run", "began"), str),
    **dict.fromkeys(("round", "rounds", "pid"), int),
    "sites": dict,
    "events": list,
}  # of what is read again
TEXTS = ("now", "judged_by", "digest", "base_digest")  # what is said of a site in words; all else is numbers


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
        own = {"pid": os.getpid(), "began": start_of_process(os.getpid())}
        text = json.dumps({**written, **own, "at": time.time()}, indent=1)
        write_atomically(self.folder / PROGRESS_FILE, text)


def read_progress(folder: Path) -> dict[str, Any] | None:
    """Returns the content of the progress file, or None where there is none or a damaged one."""
    try:
        found = read_json_object(folder / PROGRESS_FILE)
    except (OSError, ValueError):
        return None
    return found if _is_sound(found) else None


def writer_is_alive(found: Mapping[str, Any]) -> bool:
    """Returns whether the process that wrote a progress file still runs; another one with its number does not count."""
    began = found.get("began", "")
    return bool(began) and start_of_process(found.get("pid", 0)) == began


def _is_sound(found: Mapping[str, Any]) -> bool:
    """Returns whether all that is read of a progress file is of the kind that is written there."""
    if not all(isinstance(found.get(key, kind()), kind) for key, kind in KINDS.items()):
        return False
    texts = all(isinstance(event, str) for event in found.get("events", []))
    sites = found.get("sites", {}).values()
    return texts and all(isinstance(site, dict) and all(map(_is_fact, site.items())) for site in sites)


def _is_fact(fact: tuple[str, Any]) -> bool:
    key, value = fact
    if key in TEXTS:
        return isinstance(value, str)
    return isinstance(value, int | float) and not abs(value) > MOST
