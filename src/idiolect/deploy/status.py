"""The status of a deployment on the server's machine: reads it, starts a run, and watches the run to its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from idiolect.deploy.configuration import Deployment, read_plan
from idiolect.deploy.heartbeat import condition
from idiolect.deploy.processes import PROFILE, is_served, refuse_silent_server, running, use_flower
from idiolect.deploy.progress import PROGRESS_FILE, DeploymentProgress, read_progress, writer_is_alive
from idiolect.errors import UserError

__all__ = ["is_running", "start_run", "status", "watch"]

POLL_SECONDS = 0.3  # between looks at the status
START_SECONDS = 90.0  # that a run may take to begin
STARTING = "starting"  # until the server's loop writes its own progress, in the name of whoever started it
UNDER_WAY = (STARTING, "running")


def status(deployment: Deployment) -> dict[str, Any]:
    """Returns the processes on this machine, the rounds completed, and what each site did last."""
    processes, found = running(deployment), read_progress(deployment.server) or {}
    state = found.get("status", "not started")
    if state in UNDER_WAY and not writer_is_alive(found):
        state = "interrupted"
    sites = {
        site.name: {
            "runs_here": site.name in processes,
            "excluded": site.name in deployment.excluded,
            "here": condition(deployment.site_folder(site), processes[site.name])
            if site.name in processes
            else "",
            **found.get("sites", {}).get(site.name, {}),
        }
        for site in deployment.sites
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


def is_running(deployment: Deployment) -> bool:
    """Returns whether the server's loop is on its way, or was just asked for."""
    found = read_progress(deployment.server)
    return found is not None and found.get("status") in UNDER_WAY and writer_is_alive(found)


def start_run(deployment: Deployment) -> bool:
    """Has Flower start the server's loop unless it runs already; returns whether a new one was started.

    Raises:
        UserError: the server is not up, or hangs; the progress of the run before then stays.
    """
    if not is_served(deployment):
        raise UserError(
            f"no server answers at {deployment.local_address}; start it with idiolect deploy up {deployment.folder}"
        )
    if is_running(deployment):
        return False
    refuse_silent_server(deployment)
    rounds = read_plan(deployment.server).experiment.rounds
    DeploymentProgress(deployment.server, rounds, status=STARTING).save()
    done = use_flower(deployment, "run", str(deployment.folder / "app"), PROFILE)
    if done.returncode:
        (deployment.server / PROGRESS_FILE).unlink()
        raise UserError(
            f"the server at {deployment.local_address} did not take the run; see {deployment.server / 'superlink.log'}"
        )
    return True


def watch(deployment: Deployment, show: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Shows the status whenever it changes, until the run ends; returns the last one.

    Raises:
        UserError: the run stopped; the sentence is the server's.
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
        if found["status"] == "interrupted" and not found["server_runs_here"]:
            raise UserError(
                f"the server ended after round {found['round']}; start it again with idiolect deploy up "
                f"{deployment.folder} and go on with idiolect deploy run {deployment.folder}"
            )
        if found["status"] == "interrupted":
            raise UserError(
                f"the server's loop ended after round {found['round']} and could not say why; look at "
                f"{deployment.server / 'superlink.log'} and its disk, and go on with idiolect deploy run"
            )
        if found["status"] in ("not started", STARTING) and time.monotonic() - began > START_SECONDS:
            raise UserError(f"the run did not begin; see {deployment.server / 'superlink.log'}")
        time.sleep(POLL_SECONDS)
