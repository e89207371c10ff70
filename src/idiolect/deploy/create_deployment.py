"""Creates the folder of a deployment: the server's folder, one for each site, and the Flower app."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from idiolect.core.part import cohort_size
from idiolect.data import Dataset
from idiolect.deploy.code_digest import OWN_CODE
from idiolect.deploy.configuration import (
    MOST_CHECKPOINTS,
    Deployment,
    DeploymentPlan,
    SiteConfig,
    SiteEntry,
    SumRules,
    make_plan,
    read_plan,
    read_site,
    refuse_name,
    write_deployment,
    write_plan,
    write_site,
)
from idiolect.deploy.keys import (
    is_loopback,
    keep_to_owner,
    refuse_key_of_another,
    write_certificates,
    write_key_pair,
)
from idiolect.deploy.processes import PROFILE
from idiolect.deploy.site_data import DATA, write_rows
from idiolect.deploy.site_sums import PEERS
from idiolect.deploy.summed_answers import sum_rules
from idiolect.engines import EngineChoice
from idiolect.errors import UserError, refuse_outside
from idiolect.experiments import Experiment, prepare
from idiolect.experiments.setting import Setting, partition_of, pool_of, read_dataset
from idiolect.federation.selection import newcomers_last
from idiolect.own_code import load_code

__all__ = ["DeploymentOptions", "add_site", "create_deployment", "meet", "register_key", "replace_key"]

PROJECT = """[project]
name = "idiolect-app"
version = "1.0.0"
description = "A method of Idiolect where the data are"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "idiolect"

[tool.flwr.app.components]
serverapp = "idiolect_app:server"
clientapp = "idiolect_app:client"

[tool.flwr.app.config]
deployment = {deployment}
"""

MODULE = '''"""The server and the client of this deployment; what they do is in the package Idiolect."""

from idiolect.deploy.flower_app import client, server

__all__ = ["client", "server"]
'''


SERVER_OPTIONS = ("address", "plain", "deadline", "wait", "grace", "min_sites", "checkpoints", "norm_bound")


@dataclass(frozen=True)
class DeploymentOptions:
    """The options of ``deploy init``.

    Args:
        address: host and port at which sites reach the server.
        plain: connections have no certificates; on loopback only.
        min_sites: replies that a round needs; None is two, or one where there is a single site.
        deadline, wait, grace: seconds; see ``Deployment``.
        checkpoints, norm_bound: see ``Deployment``.
        with_data: writes each site's rows of the experiment's dataset, for a trial; otherwise sites bring their own.
        code: a file that registers methods, parts or networks of the user's own.
        secure_aggregation: the server sees sums over sites alone.
        secure_threshold: the fewest sites in a sum; None is more than two thirds of a round's.
    """

    address: str = "127.0.0.1:9093"
    plain: bool = False
    min_sites: int | None = None
    deadline: float = 3600.0
    wait: float = 60.0
    grace: float = 30.0
    checkpoints: int = 5
    norm_bound: float = 1e6
    with_data: bool = True
    code: Path | None = None
    secure_aggregation: bool = False
    secure_threshold: int | None = None


def create_deployment(
    experiment: Experiment, folder: Path, options: DeploymentOptions, data_dir: Path | None = None
) -> Deployment:
    """Tries the experiment and writes the deployment's folder; an error leaves nothing behind."""
    folder = Path(folder).resolve()
    if folder.exists():
        raise UserError(f"{folder} is there already; choose another folder or remove it")
    _refuse_address(options)
    if experiment.client_test != "split":
        raise UserError(
            f"a deployment tests every site on rows of its own; set client_test to split, not {experiment.client_test}"
        )
    if experiment.under:
        raise UserError(
            f"a deployment meets the troubles of its own sites and network; leave {experiment.under[0]} out of under"
        )
    most = max(experiment.clients - experiment.newcomers, 1)
    if options.min_sites is None and not options.secure_aggregation:  # its sums say how many they need
        options = replace(options, min_sites=min(2, most))
    if options.min_sites is not None:
        refuse_outside("min_sites", options.min_sites, 1, most)
    for name in ("deadline", "wait", "grace"):
        refuse_outside(name, getattr(options, name), 0)
    refuse_outside("checkpoints", options.checkpoints, 2, MOST_CHECKPOINTS)
    refuse_outside("norm_bound", options.norm_bound, 1)
    if options.secure_threshold is not None and not options.secure_aggregation:
        raise UserError("secure_threshold is an option of secure aggregation; give --secure-aggregation too")
    try:
        folder.mkdir(parents=True, mode=0o700)
        return _write(experiment, folder, options, data_dir)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _write(
    experiment: Experiment, folder: Path, options: DeploymentOptions, data_dir: Path | None
) -> Deployment:
    server = folder / "server"
    (server / "sites").mkdir(parents=True)
    if options.code is not None:
        load_code(options.code)
        shutil.copyfile(options.code, server / OWN_CODE)
    dataset = read_dataset(experiment.dataset, data_dir)
    setting = prepare(experiment, EngineChoice("loop", "cpu", "a deployment"), dataset=dataset)
    dataset = pool_of(experiment, dataset)
    _refuse_given_splits(dataset)
    parted = partition_of(experiment, dataset)
    numbered = newcomers_last(len(parted.clients), experiment.newcomers, seed=experiment.seed_of_data)
    experiment = replace(experiment, clients=len(numbered))
    sites = tuple(
        SiteEntry(
            f"site-{client}", client, number, len(parted.clients[number]) if options.with_data else None
        )
        for client, number in enumerate(numbered)
    )
    population = experiment.clients - experiment.newcomers
    sums = _sum_rules(setting, sites[:population], options) if options.secure_aggregation else None
    plan = make_plan(experiment, setting.inputs, dataset.is_tokens, server, sums)
    if sums is not None:
        options = replace(options, min_sites=_fewest(sums, options))
    chosen = {key: getattr(options, key) for key in SERVER_OPTIONS}
    deployment = Deployment(folder=folder, sites=sites, **chosen)
    _write_server(deployment, plan, setting, official=len(dataset.test_y) > 0)
    for site in sites:
        rows = parted.clients[site.number] if options.with_data else None
        _write_site(deployment, plan, site)
        if rows is not None:
            where = deployment.site_folder(site) / "data" / DATA
            write_rows(where, x=dataset.train_x[rows], y=dataset.train_y[rows])
    if sums is not None:
        for site in sites[:population]:
            _introduce(deployment, site)
    return deployment


def _sum_rules(setting: Setting, sites: Sequence[SiteEntry], options: DeploymentOptions) -> SumRules:
    """Returns the rules of secure aggregation; what it cannot work with is refused."""
    cohort = cohort_size(setting.experiment.participation_rate, len(sites))
    return sum_rules(setting, cohort, options.secure_threshold, [site.rows for site in sites])


def _fewest(sums: SumRules, options: DeploymentOptions) -> int:
    """Returns the answers that a round needs, at least those of a sum."""
    if options.min_sites is not None and options.min_sites < sums.threshold:
        raise UserError(
            f"min_sites is {options.min_sites}, and secure aggregation adds up at least {sums.threshold} sites; leave "
            "--min-sites out, or lower --secure-threshold"
        )
    return options.min_sites or sums.threshold


def _introduce(deployment: Deployment, site: SiteEntry) -> None:
    """Gives the other sites' folders that lie here the public key of a site, by which they know it in secure sums."""
    public = deployment.server / "sites" / f"{site.name}.pub"
    for other in deployment.sites:
        peers = deployment.site_folder(other) / PEERS
        if other != site and peers.is_dir():
            shutil.copyfile(public, peers / public.name)


def _refuse_given_splits(dataset: Dataset) -> None:
    """Refuses data whose own split a site, which splits its rows at random, would not follow."""
    if any(column is not None for column in (dataset.splits, dataset.times, dataset.groups)):
        raise UserError(
            f"dataset {dataset.name!r} says how its rows are split, and sites of a deployment split theirs at random; "
            "give it without split, time and group"
        )


def add_site(deployment: Deployment, plan: DeploymentPlan, name: str) -> Deployment:
    """Adds a site that comes later; it brings its own rows and joins by the method's rule for newcomers."""
    refuse_name(name)
    if name in {site.name for site in deployment.sites}:
        raise UserError(f"there is a site {name} already; choose another name")
    client = max(site.client for site in deployment.sites) + 1
    added = SiteEntry(name, client, client)
    larger = replace(deployment, sites=(*deployment.sites, added))
    _write_site(larger, plan, added)
    write_deployment(larger)
    return larger


def replace_key(folder: Path) -> Path:
    """Makes a new key pair for a site; returns the file of the public key, which the server needs."""
    write_key_pair(folder)
    return folder / "key.pub"


def register_key(deployment: Deployment, name: str, public: Path) -> None:
    """Makes a public key the one by which the server knows a site."""
    member = next((site for site in deployment.sites if site.name == name), None)
    if member is None:
        raise UserError(f"there is no site {name} in {deployment.folder}; add it with idiolect deploy add")
    keys = deployment.server / "sites"
    refuse_key_of_another(public, [path for path in keys.glob("*.pub") if path.stem != name])
    shutil.copyfile(public, keys / f"{name}.pub")
    _introduce(deployment, member)


def meet(folder: Path, name: str, public: Path) -> None:
    """Makes a public key the one by which the site in ``folder`` knows another site in secure sums."""
    config = read_site(folder)
    peers = config.folder / PEERS
    if read_plan(config.folder).sums is None:
        raise UserError(
            f"{config.name} knows no other sites, because its deployment has no secure aggregation; register the key "
            "with the server's folder"
        )
    if name == config.name or not (peers / f"{name}.pub").exists():
        known = ", ".join(sorted(path.stem for path in peers.glob("*.pub"))) or "none"
        raise UserError(f"{config.name} adds up with no site {name!r}; it knows {known}")
    refuse_key_of_another(public, [path for path in peers.glob("*.pub") if path.stem != name])
    shutil.copyfile(public, peers / f"{name}.pub")


def _write_server(deployment: Deployment, plan: DeploymentPlan, setting: Setting, official: bool) -> None:
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
    _write_app(deployment)
    _write_profile(deployment)


def _write_site(deployment: Deployment, plan: DeploymentPlan, site: SiteEntry) -> None:
    """Writes all that a site needs; the folder can be moved to another machine as it is."""
    folder, server = deployment.site_folder(site), deployment.server
    (folder / "data").mkdir(parents=True)
    write_plan(folder, plan)
    if (server / OWN_CODE).exists():
        shutil.copyfile(server / OWN_CODE, folder / OWN_CODE)
    write_key_pair(folder)
    shutil.copyfile(folder / "key.pub", server / "sites" / f"{site.name}.pub")
    shutil.copyfile(server / "key.pub", folder / "server.pub")
    if not deployment.plain:
        shutil.copyfile(server / "tls" / "ca.crt", folder / "ca.crt")
    write_site(
        SiteConfig(
            folder=folder,
            name=site.name,
            client=site.client,
            number=site.number,
            address=deployment.address,
            plain=deployment.plain,
            experiment=plan.identity,
            code=plan.code,
            data="data",
            private="private",
            share_scores=None if plan.sums is None else False,
        )
    )
    if plan.sums is not None:
        (folder / PEERS).mkdir()
    keep_to_owner(folder)


def _write_app(deployment: Deployment) -> None:
    """Writes the app that Flower is given to run; it imports everything from this package."""
    folder = deployment.folder / "app"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(deployment=json.dumps(str(deployment.folder))))
    (folder / "idiolect_app.py").write_text(MODULE)


def _write_profile(deployment: Deployment) -> None:
    """Writes Flower's own configuration into the deployment's folder, not into the user's home."""
    folder = deployment.server / "flower"
    folder.mkdir(parents=True, exist_ok=True)
    trust = (
        "insecure = true"
        if deployment.plain
        else f"root-certificates = {json.dumps(str(deployment.server / 'tls' / 'ca.crt'))}"
    )
    address = f'address = "{deployment.local_address}"'
    (folder / "config.toml").write_text(
        f'[superlink]\ndefault = "{PROFILE}"\n\n[superlink.{PROFILE}]\n{address}\n{trust}\n'
    )


def _refuse_address(options: DeploymentOptions) -> None:
    host, colon, port = options.address.rpartition(":")
    if not (colon and host and port.isdigit() and 0 < int(port) < 65536):
        raise UserError(f"address must be host:port, got {options.address!r}")
    if ":" in host:
        raise UserError(
            f"the server listens at an IPv4 address, got {options.address!r}; give one, or a name of the machine"
        )
    if options.plain and not is_loopback(host):
        raise UserError(f"plain connections are for trials on loopback, and {host} is not; leave out --plain")
