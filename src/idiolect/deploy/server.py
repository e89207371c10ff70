"""The server of a deployment: trains from its folder to a finished record, and resumes after any stop."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from idiolect.deploy.checkpoint_history import keep_checkpoint
from idiolect.deploy.configuration import Deployment, DeploymentPlan, read_deployment, read_plan
from idiolect.deploy.deployed_sites import DeployedSites
from idiolect.deploy.keys import private_key
from idiolect.deploy.progress import DeploymentProgress
from idiolect.deploy.receiving_grid import MessageGrid
from idiolect.deploy.server_memory import count_start
from idiolect.deploy.site_data import server_federation
from idiolect.deploy.site_requests import ConnectedSites, SiteConnection
from idiolect.deploy.spent_budget import spent_by_sites
from idiolect.engines import EngineChoice
from idiolect.errors import UserError
from idiolect.experiments.identity import name_of
from idiolect.experiments.manifest import describe_run
from idiolect.experiments.rounds.personal_downloads import PersonalDownloads
from idiolect.experiments.rounds.privacy_budget import PrivacyBudget
from idiolect.experiments.rounds.round import FederatedRun
from idiolect.experiments.setting import Setting, assemble
from idiolect.methods import method
from idiolect.records import (
    CheckpointName,
    RunWriter,
    checkpoint_tables,
    find_checkpoint,
    finished,
    finished_folder,
    partial_folder,
    save_checkpoint,
)

__all__ = ["privacy_notice", "run_folder", "run_server", "server_setting"]

ENGINE_CHOICE = EngineChoice("flower", "cpu", "sites train where their data are")


def server_setting(plan: DeploymentPlan, folder: Path) -> Setting:
    """Returns the setting of the experiment without any row of a site."""
    federation = server_federation(plan, folder)
    return assemble(plan.experiment, ENGINE_CHOICE, federation, plan.inputs, held=[], is_deployed=True)


def privacy_notice(deployment: Deployment) -> str:
    """Returns what the parts of the method promise of privacy, and who says what is spent; empty without a promise."""
    plan = read_plan(deployment.server)
    if not any(part.guarantee for part in method(plan.experiment.method).parts):
        return ""
    setting = server_setting(plan, deployment.server)
    spends = PrivacyBudget(setting).sentence(plan.experiment.rounds)
    stays = "; losses, scores and counts stay at the sites" if setting.numbers_stay_at_sites else ""
    return f"{spends}{stays}"


def run_folder(deployment: Deployment, plan: DeploymentPlan) -> tuple[Path, str]:
    """Returns the folder of runs, and this run's name."""
    return deployment.server / "runs", name_of(plan.experiment)


def run_server(grid: MessageGrid, folder: Path) -> None:
    """Trains to the end from where the last start stopped; an error is written to the progress file."""
    deployment = read_deployment(folder)
    plan = read_plan(deployment.server)
    progress = DeploymentProgress(deployment.server, plan.experiment.rounds)
    try:
        _run(grid, deployment, plan, progress)
        progress.status = "finished"
    except UserError as error:
        progress.status, progress.message = "stopped", str(error)
    except BaseException as error:
        progress.status, progress.message = "failed", f"{type(error).__name__}: {error}"
        raise
    finally:
        progress.save()  # first: where the log cannot be written, the status says all the same that the run ended
        progress.audit("run", what=f"{progress.status} {progress.message}".strip())


def _run(
    grid: MessageGrid, deployment: Deployment, plan: DeploymentPlan, progress: DeploymentProgress
) -> None:
    setting = server_setting(plan, deployment.server)
    out, name = run_folder(deployment, plan)
    is_finished = finished(out, name)
    connected = ConnectedSites(deployment.sites, deployment.server / "sites")
    key = private_key(deployment.server / "key")
    memory = count_start(deployment.server, lambda sentence: progress.heard("", sentence))
    connection = SiteConnection(grid, plan, connected, key, progress.heard, memory.start)
    downloads = PersonalDownloads.of(setting, None)
    spent = spent_by_sites(deployment.server, lambda sentence: progress.heard("", sentence))
    sites = DeployedSites(setting, deployment, connection, progress, downloads, memory.era, spent=spent)
    run = FederatedRun(sites, setting.first_server())
    run.budget = replace(run.budget, reported=spent)
    folder = finished_folder(out, name) if is_finished else partial_folder(out, name)
    progress.folder_of_run = str(finished_folder(out, name))
    found = (
        find_checkpoint(folder, lambda sentence: progress.heard("", sentence)) if folder.exists() else None
    )
    if found is not None:
        run.restore(found.round, found.tree)
    progress.round = run.round
    progress.save()
    what = "begins" if found is None else "goes on"
    progress.audit("run", what=what, experiment=plan.identity, code=plan.code)
    for excluded in deployment.excluded:
        progress.heard(excluded, "is excluded")
    wanted = [site.name for site in (sites.newcomers if is_finished else deployment.members)]
    connection.wait_for(wanted, deployment.wait)
    if is_finished:
        _join_late(run, folder, found and found.name)
    else:
        with RunWriter(out, name, describe_run(setting, ENGINE_CHOICE)) as writer:
            _train(run, writer, found and found.name)


def _train(run: FederatedRun[DeployedSites], writer: RunWriter, last: CheckpointName | None) -> None:
    """Runs the rounds that are left and the end of the run, with a checkpoint after each."""
    began = time.perf_counter()
    while run.round < run.setting.experiment.rounds:
        round_began = time.perf_counter()
        run.advance()
        run.participants.progress.complete_round(run.round, time.perf_counter() - round_began)
        last = _checkpoint(writer.folder, run, last)
    run.finish()
    last = _checkpoint(writer.folder, run, last)
    tables = checkpoint_tables(writer.folder, last)
    final = {**tables, "costs": run.costs.table()}
    writer.finish(tables["rounds"], tables["rows"], _outcome(run, time.perf_counter() - began), final)


def _join_late(run: FederatedRun[DeployedSites], folder: Path, last: CheckpointName | None) -> None:
    """Lets sites join that came after the run was finished; the record stays, the checkpoint notes them."""
    if run.participants.newcomers:
        run.join_newcomers()
        _checkpoint(folder, run, last)


def _checkpoint(
    folder: Path, run: FederatedRun[DeployedSites], last: CheckpointName | None
) -> CheckpointName:
    """Saves what changed since the checkpoint ``last``; returns the name of this one."""
    tables = {"rows": run.rows.take(), "rounds": run.rounds.take(), **run.counts.take()}
    name = save_checkpoint(
        folder, run.round, {**run.state(), **run.participants.downloads.state()}, tables, last
    )
    deployment = run.participants.deployment
    keep_checkpoint(deployment.server, folder, run.round, deployment.checkpoints)
    return name


def _outcome(run: FederatedRun[DeployedSites], seconds: float) -> dict[str, Any]:
    """Returns what is known of a run only at its end."""
    sites = run.participants
    notes = ["trained where the data are, over Flower", *sites.progress.events]
    notes += [f"{name} is {member}" for name, member in run.picks.items()]
    clients = {site.name: site.client for site in sites.deployment.sites}
    found = {"seconds": seconds, "notes": notes, "choices": run.picks, "sites": clients}
    return found | run.budget.facts(run.round)
