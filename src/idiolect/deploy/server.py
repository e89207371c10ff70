"""The server's part of a deployment, from its folder to a finished record; taken up again after any stop."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from flwr.serverapp import Grid

from idiolect.deploy.coordinator import Coordinator
from idiolect.deploy.data import server_federation
from idiolect.deploy.keys import private_key
from idiolect.deploy.link import Link
from idiolect.deploy.plan import Deployment, Plan, read_deployment, read_plan
from idiolect.deploy.progress import Progress
from idiolect.deploy.roster import Roster
from idiolect.engines import EngineChoice
from idiolect.errors import UserError
from idiolect.experiments.identity import name_of
from idiolect.experiments.manifest import describe_run
from idiolect.experiments.setting import Setting, assemble
from idiolect.records import (
    RunWriter,
    checkpoint_tables,
    find_checkpoint,
    finished,
    finished_folder,
    partial_folder,
    save_checkpoint,
)

__all__ = ["run_folder", "run_server", "server_setting"]

WHERE = EngineChoice("flower", "cpu", "sites train where their data are")


def server_setting(plan: Plan, folder: Path) -> Setting:
    """What the experiment runs on, without a single row of a site."""
    return assemble(plan.experiment, WHERE, server_federation(plan, folder), plan.inputs, held=[])


def run_folder(deployment: Deployment, plan: Plan) -> tuple[Path, str]:
    """Where runs lie, and this run's name."""
    return deployment.server / "runs", name_of(plan.experiment)


def run_server(grid: Grid, folder: Path) -> None:
    """Trains to the end from wherever the last start came to; a user's error ends in the progress file."""
    deployment = read_deployment(folder)
    plan = read_plan(deployment.server)
    progress = Progress(deployment.server, plan.experiment.rounds)
    try:
        _run(grid, deployment, plan, progress)
        progress.status = "finished"
    except UserError as error:
        progress.status, progress.message = "stopped", str(error)
    except BaseException as error:
        progress.status, progress.message = "failed", f"{type(error).__name__}: {error}"
        raise
    finally:
        progress.save()


def _run(grid: Grid, deployment: Deployment, plan: Plan, progress: Progress) -> None:
    setting = server_setting(plan, deployment.server)
    out, name = run_folder(deployment, plan)
    is_finished = finished(out, name)
    roster = Roster(deployment.members, deployment.server / "sites")
    link = Link(grid, plan, roster, private_key(deployment.server / "key"), progress.heard)
    coordinator = Coordinator(setting, deployment, link, progress, setting.first_server())
    folder = finished_folder(out, name) if is_finished else partial_folder(out, name)
    progress.folder_of_run = str(finished_folder(out, name))
    found = (
        find_checkpoint(folder, lambda sentence: progress.heard("", sentence)) if folder.exists() else None
    )
    if found is not None:
        coordinator.restore(*found)
    progress.round = coordinator.round
    progress.save()
    wanted = [member.name for member in (coordinator.newcomers if is_finished else deployment.members)]
    link.wait_for(wanted, deployment.wait)
    if is_finished:
        _join_late(coordinator, folder)
    else:
        with RunWriter(out, name, describe_run(setting, WHERE)) as writer:
            _train(coordinator, writer, found and found[0])


def _train(coordinator: Coordinator, writer: RunWriter, last: int | None) -> None:
    began = time.perf_counter()
    while coordinator.round < coordinator.setting.experiment.rounds:
        coordinator.advance()
        last = _checkpoint(writer.folder, coordinator, last)
    coordinator.finish()
    last = _checkpoint(writer.folder, coordinator, last)
    tables = checkpoint_tables(writer.folder, last)
    writer.finish(tables["rounds"], tables["rows"], _outcome(coordinator, time.perf_counter() - began))


def _join_late(coordinator: Coordinator, folder: Path) -> None:
    """Sites that came after the run was finished join; the record stays, the checkpoint remembers them."""
    if coordinator.newcomers:
        coordinator.onboard()
        _checkpoint(folder, coordinator, coordinator.round)


def _checkpoint(folder: Path, coordinator: Coordinator, last: int | None) -> int:
    tables = {"rows": coordinator.rows.take(), "rounds": coordinator.rounds.take()}
    save_checkpoint(folder, coordinator.round, coordinator.state(), tables, last)
    return coordinator.round


def _outcome(coordinator: Coordinator, seconds: float) -> dict[str, Any]:
    """What is known of a run only at its end."""
    notes = ["trained where the data are, over Flower", *coordinator.progress.events]
    notes += [f"{name} is {member}" for name, member in coordinator.picks.items()]
    sites = {member.name: member.client for member in coordinator.deployment.members}
    return {"seconds": seconds, "notes": notes, "choices": coordinator.picks, "sites": sites}
