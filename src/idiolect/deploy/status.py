"""How a deployment stands, and a run of it from start to end as seen from the server's machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from idiolect.deploy.app_files import PROFILE
from idiolect.deploy.local import flower, is_served, running
from idiolect.deploy.plan import Deployment
from idiolect.deploy.progress import PROGRESS, read_progress
from idiolect.errors import UserError

__all__ = ["start_run", "status", "watch"]

TURN = 0.3  # seconds between looks
START = 90.0  # seconds that a run may take to begin


def status(deployment: Deployment) -> dict[str, Any]:
    """Processes here, rounds done, and each site's last word."""
    processes, found = running(deployment), read_progress(deployment.server) or {}
    state = found.get("status", "not started")
    if state == "running" and not _alive(found):
        state = "interrupted"
    sites = {
        member.name: {"runs_here": member.name in processes, **found.get("sites", {}).get(member.name, {})}
        for member in deployment.members
    }
    return {
        "server_runs_here": "server" in processes,
        "status": state,
        "message": found.get("message", ""),
        "round": found.get("round", 0),
        "rounds": found.get("rounds", 0),
        "run": found.get("folder_of_run", ""),
        "sites": sites,
        "events": found.get("events", []),
    }


def start_run(deployment: Deployment) -> bool:
    """Has Flower start the server's loop; one that is running stays.  Gives whether a new one was started.

    Raises:
        UserError: the server is not up.
    """
    found = read_progress(deployment.server)
    if found and found["status"] == "running" and _alive(found):
        return False
    if not is_served(deployment):
        raise UserError(
            f"no server answers at {deployment.local_address}; start it with idiolect deploy up {deployment.folder}"
        )
    (deployment.server / PROGRESS).unlink(missing_ok=True)
    done = flower(deployment, "run", str(deployment.folder / "app"), PROFILE)
    if done.returncode:
        raise UserError(
            f"the server at {deployment.local_address} did not take the run; see {deployment.server / 'superlink.log'}"
        )
    return True


def watch(deployment: Deployment, show: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Shows how the run stands, whenever that changes, until it ends.

    Raises:
        UserError: it stopped; the sentence is the server's.
    """
    began, last = time.monotonic(), None
    while True:
        found = status(deployment)
        if found != last:
            show(found)
            last = found
        if found["status"] == "finished":
            return found
        if found["status"] in ("stopped", "failed"):
            raise UserError(found["message"])
        if found["status"] == "interrupted":
            raise UserError(
                f"the server's loop ended after round {found['round']}; go on with idiolect deploy run"
            )
        if found["status"] == "not started" and time.monotonic() - began > START:
            raise UserError(f"the run did not begin; see {deployment.server / 'superlink.log'}")
        time.sleep(TURN)


def _alive(found: dict[str, Any]) -> bool:
    try:
        os.kill(found["pid"], 0)
    except (ProcessLookupError, KeyError):
        return False
    except PermissionError:
        return True
    return True
