"""``deploy init``: a folder for the server, one for each site, and the Flower app."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from idiolect.deploy.app_files import write_app, write_profile
from idiolect.deploy.code import OWN, load_file
from idiolect.deploy.data import DATA, write_rows
from idiolect.deploy.keys import is_loopback, write_certificates, write_key_pair
from idiolect.deploy.plan import (
    Deployment,
    Member,
    Plan,
    SiteConfig,
    plan_of,
    write_deployment,
    write_plan,
    write_site,
)
from idiolect.engines import EngineChoice
from idiolect.errors import UserError, refuse_outside
from idiolect.experiments import Experiment, prepare
from idiolect.experiments.setting import Inputs, Setting, pool_of, read_dataset
from idiolect.federation.selection import newcomers_last
from idiolect.partition import partition

__all__ = ["Options", "add_site", "init", "replace_key"]


@dataclass(frozen=True)
class Options:
    """Args:
    address: host and port at which sites reach the server.
    plain: no certificates; on loopback only.
    with_data: write each site's rows of the experiment's dataset, for a trial; else sites bring their own.
    min_sites: answers that a round needs; None is two, or one of a single site.
    code: a file that registers methods, parts or networks of one's own.
    """

    address: str = "127.0.0.1:9093"
    plain: bool = False
    min_sites: int | None = None
    deadline: float = 3600.0
    wait: float = 60.0
    grace: float = 30.0
    with_data: bool = True
    code: Path | None = None


def init(experiment: Experiment, folder: Path, options: Options, data_dir: Path | None = None) -> Deployment:
    """Tries the experiment and writes the deployment; on an error nothing is left behind."""
    folder = Path(folder).resolve()
    if folder.exists():
        raise UserError(f"{folder} is there already; choose another folder or remove it")
    _refuse_address(options)
    most = max(experiment.clients - experiment.newcomers, 1)
    options = replace(options, min_sites=min(2, most) if options.min_sites is None else options.min_sites)
    refuse_outside("min_sites", options.min_sites, 1, most)
    for name in ("deadline", "wait", "grace"):
        refuse_outside(name, getattr(options, name), 0)
    try:
        folder.mkdir(parents=True, mode=0o700)
        return _write(experiment, folder, options, data_dir)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write(experiment: Experiment, folder: Path, options: Options, data_dir: Path | None) -> Deployment:
    server = folder / "server"
    (server / "sites").mkdir(parents=True)
    if options.code is not None:
        load_file(options.code)
        shutil.copyfile(options.code, server / OWN)
    if experiment.client_test != "split":
        raise UserError(
            f"a deployment tests every site on rows of its own; set client_test to split, not {experiment.client_test}"
        )
    dataset = read_dataset(experiment.dataset, data_dir)
    setting = prepare(experiment, EngineChoice("loop", "cpu", "a deployment"), dataset=dataset)
    dataset = pool_of(experiment, dataset)
    parted = partition(
        experiment.partition, dataset.train_y, experiment.clients, experiment.seed, ids=dataset.train_ids
    )
    numbered = newcomers_last(len(parted.clients), experiment.newcomers, seed=experiment.seed)
    experiment = replace(experiment, clients=len(numbered))
    plan = plan_of(experiment, Inputs.of(dataset), dataset.is_tokens, server)
    members = tuple(Member(f"site-{client}", client, number) for client, number in enumerate(numbered))
    chosen = {
        key: getattr(options, key) for key in ("address", "plain", "deadline", "wait", "grace", "min_sites")
    }
    deployment = Deployment(folder=folder, members=members, **chosen)
    _write_server(deployment, plan, setting, official=len(dataset.test_y) > 0)
    for member in members:
        rows = parted.clients[member.number] if options.with_data else None
        _write_site(deployment, plan, member)
        if rows is not None:
            where = deployment.site_folder(member) / "data" / DATA
            write_rows(where, x=dataset.train_x[rows], y=dataset.train_y[rows])
    return deployment


def add_site(deployment: Deployment, plan: Plan, name: str) -> Deployment:
    """A site that comes later: it joins by the method's rule for newcomers, and brings its own rows."""
    if not name.replace("-", "").replace("_", "").isalnum():
        raise UserError(f"{name!r} cannot name a site; use letters, digits and hyphens")
    if name in {member.name for member in deployment.members}:
        raise UserError(f"there is a site {name} already; choose another name")
    client = max(member.client for member in deployment.members) + 1
    member = Member(name, client, client)
    larger = replace(deployment, members=(*deployment.members, member))
    _write_site(larger, plan, member)
    write_deployment(larger)
    return larger


def replace_key(folder: Path) -> Path:
    """A new key pair for a site, made on its own machine; gives the public half, which the server needs."""
    write_key_pair(folder)
    return folder / "key.pub"


def _write_server(deployment: Deployment, plan: Plan, setting: Setting, official: bool) -> None:
    server, federation = deployment.server, setting.federation
    write_plan(server, plan)
    write_key_pair(server)
    if not deployment.plain:
        host = deployment.address.rpartition(":")[0]
        write_certificates(server / "tls", sorted({host, "localhost", "127.0.0.1"}))
    if official:
        write_rows(
            server / DATA,
            test_x=federation.server_x,
            test_y=federation.server_y,
            public_x=federation.x[federation.public],
        )
    write_deployment(deployment)
    write_app(deployment)
    write_profile(deployment)


def _write_site(deployment: Deployment, plan: Plan, member: Member) -> None:
    """All that a site needs; the folder can be taken to another machine as it is."""
    folder, server = deployment.site_folder(member), deployment.server
    (folder / "data").mkdir(parents=True)
    write_plan(folder, plan)
    if (server / OWN).exists():
        shutil.copyfile(server / OWN, folder / OWN)
    write_key_pair(folder)
    shutil.copyfile(folder / "key.pub", server / "sites" / f"{member.name}.pub")
    shutil.copyfile(server / "key.pub", folder / "server.pub")
    if not deployment.plain:
        shutil.copyfile(server / "tls" / "ca.crt", folder / "ca.crt")
    write_site(
        SiteConfig(
            folder=folder,
            name=member.name,
            client=member.client,
            number=member.number,
            address=deployment.address,
            plain=deployment.plain,
            experiment=plan.identity,
            code=plan.code,
            data="data",
            private="private",
        )
    )


def _refuse_address(options: Options) -> None:
    host, colon, port = options.address.rpartition(":")
    if not (colon and host and port.isdigit() and 0 < int(port) < 65536):
        raise UserError(f"address must be host:port, got {options.address!r}")
    if options.plain and not is_loopback(host):
        raise UserError(f"plain connections are for trials on loopback, and {host} is not; leave out --plain")
