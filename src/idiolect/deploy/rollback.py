"""The way back from a poisoned round: the server and its sites go back, and a site is excluded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from idiolect.deploy.checkpoint_history import put_back, rounds_kept
from idiolect.deploy.configuration import Deployment, read_plan, write_deployment
from idiolect.deploy.progress import DeploymentProgress
from idiolect.deploy.server import run_folder
from idiolect.deploy.server_memory import begin_era
from idiolect.deploy.status import is_running
from idiolect.errors import UserError
from idiolect.records import WriteLock, finished_folder, partial_folder

__all__ = ["exclude_site", "include_site", "roll_back"]


def roll_back(deployment: Deployment, round: int, say: Callable[[str], None]) -> None:
    """Goes back to the state after ``round`` rounds; sites follow when they are asked next.

    A finished run is under way again, and its record goes.

    Raises:
        UserError: the run is on its way or there is none, or no checkpoint of that round is kept.
    """
    plan = read_plan(deployment.server)
    out, name = run_folder(deployment, plan)
    final, partial = finished_folder(out, name), partial_folder(out, name)
    if is_running(deployment):
        raise UserError(
            f"the run is on its way; end it with idiolect deploy down {deployment.folder} before it goes back"
        )
    if not (final.exists() or partial.exists()):
        raise UserError(
            f"nothing has been trained in {deployment.folder} yet, so there is no round to go back to"
        )
    kept = [0, *rounds_kept(deployment.server)]
    if round not in kept:
        raise UserError(
            f"--to must be a round whose checkpoint is kept, which are {', '.join(map(str, kept))}; got {round}"
        )
    if not partial.exists():
        final.rename(partial)
        say(f"the record {final} is no longer finished")
    lock = WriteLock(partial)
    try:
        begin_era(deployment.server, say)  # first: without it, sites would not know that the server went back
        put_back(deployment.server, partial, round)
    finally:
        lock.release()
    message = f"went back to round {round}; go on with idiolect deploy run {deployment.folder}"
    progress = DeploymentProgress(
        deployment.server, plan.experiment.rounds, round, status="stopped", message=message
    )
    progress.save()


def exclude_site(deployment: Deployment, name: str) -> Deployment:
    """Excludes a site: from the next round on it is asked nothing; its entry and its key stay.

    Raises:
        UserError: there is no such site, or too few would be left for a round.
    """
    _refuse_stranger(deployment, name)
    excluded = tuple(dict.fromkeys((*deployment.excluded, name)))
    smaller = replace(deployment, excluded=excluded)
    population = read_plan(deployment.server).population
    left = [site for site in smaller.members if site.client < population]
    if len(left) < deployment.min_sites:
        raise UserError(
            f"without {name} only {len(left)} of the sites can train, and min_sites asks for {deployment.min_sites}; "
            f"lower it in {deployment.folder / 'deployment.toml'} first"
        )
    write_deployment(smaller)
    return smaller


def include_site(deployment: Deployment, name: str) -> Deployment:
    """Includes a site again that was excluded; it goes on from its own private state.

    Raises:
        UserError: there is no such site.
    """
    _refuse_stranger(deployment, name)
    larger = replace(deployment, excluded=tuple(one for one in deployment.excluded if one != name))
    write_deployment(larger)
    return larger


def _refuse_stranger(deployment: Deployment, name: str) -> None:
    names = [site.name for site in deployment.sites]
    if name not in names:
        raise UserError(f"there is no site {name} in {deployment.folder}; known: {', '.join(names)}")
