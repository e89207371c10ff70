"""What server and sites agree on, and what each is told of itself: the files that ``deploy init`` writes."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from idiolect.deploy.code import code_digest, load_own
from idiolect.errors import UserError
from idiolect.experiments import Experiment, with_settings
from idiolect.experiments.setting import Inputs
from idiolect.records import spec_hash
from idiolect.records.atomic_files import write_atomically

__all__ = [
    "Deployment",
    "Member",
    "Plan",
    "SiteConfig",
    "plan_of",
    "read_deployment",
    "read_plan",
    "read_site",
    "write_deployment",
    "write_plan",
    "write_site",
]

PLAN, SITE, DEPLOYMENT = "experiment.json", "site.toml", "deployment.toml"


@dataclass(frozen=True)
class Plan:
    """The experiment as server and sites have it in writing.

    Args:
        inputs: what a network must know of the data.
        tokens: rows are whole numbers, not images.
        identity: hash of all of it; every message names it.
        code: digest of the code that decides numbers.
    """

    experiment: Experiment
    inputs: Inputs
    tokens: bool
    identity: str
    code: str

    @property
    def population(self) -> int:
        return self.experiment.clients - self.experiment.newcomers


@dataclass(frozen=True)
class Member:
    """A site as the server knows it.

    Args:
        client: its number in the federation.
        number: its number in the partition, which decides how its rows are split.
    """

    name: str
    client: int
    number: int


@dataclass(frozen=True)
class Deployment:
    """What the server is told.

    Args:
        address: host and port of the server.
        plain: no certificates, on loopback only.
        deadline: seconds that a round waits for the sites it selected.
        wait: seconds that the server waits for all sites before the first round.
        min_sites: answers that a round needs.
        grace: seconds that a site may be away in a round before it is left out.
    """

    folder: Path
    address: str
    plain: bool
    deadline: float
    wait: float
    grace: float
    min_sites: int
    members: tuple[Member, ...]

    @property
    def local_address(self) -> str:
        """How the server itself reaches it."""
        return f"127.0.0.1:{self.address.rpartition(':')[2]}"

    @property
    def server(self) -> Path:
        return self.folder / "server"

    def site_folder(self, member: Member) -> Path:
        return self.folder / "sites" / member.name


@dataclass(frozen=True)
class SiteConfig:
    """What a site is told of itself.

    Args:
        experiment, code: what it agreed to; anything else is refused.
        data, private: folders, relative to the site's own.
    """

    folder: Path
    name: str
    client: int
    number: int
    address: str
    plain: bool
    experiment: str
    code: str
    data: str
    private: str


def plan_of(experiment: Experiment, inputs: Inputs, tokens: bool, folder: Path) -> Plan:
    written = _written(experiment, inputs, tokens)
    return Plan(experiment, inputs, tokens, spec_hash(written)[:16], code_digest(folder)[:16])


def write_plan(folder: Path, plan: Plan) -> None:
    text = json.dumps(_written(plan.experiment, plan.inputs, plan.tokens), indent=2)
    write_atomically(folder / PLAN, text + "\n")


def read_plan(folder: Path) -> Plan:
    """The plan in a folder of the server or of a site, with the method's own code loaded."""
    load_own(folder)
    found = _read(folder / PLAN, json.loads)
    try:
        inputs = {key: tuple(v) if isinstance(v, list) else v for key, v in found["inputs"].items()}
        experiment = with_settings(Experiment(), found["experiment"])
        return plan_of(experiment, Inputs(**inputs), bool(found["tokens"]), folder)
    except (KeyError, TypeError) as error:
        raise UserError(f"{folder / PLAN} is no experiment of a deployment: {error} is amiss") from None


def read_deployment(folder: Path) -> Deployment:
    found = _read(Path(folder) / DEPLOYMENT, tomllib.loads)
    members = tuple(Member(**member) for member in found.pop("site", []))
    try:
        return Deployment(folder=Path(folder).resolve(), members=members, **found)
    except TypeError as error:
        raise UserError(f"{Path(folder) / DEPLOYMENT} is no deployment: {error}") from None


def read_site(folder: Path) -> SiteConfig:
    found = _read(Path(folder) / SITE, tomllib.loads)
    try:
        return SiteConfig(folder=Path(folder).resolve(), **found)
    except TypeError as error:
        raise UserError(f"{Path(folder) / SITE} is no site: {error}") from None


def write_deployment(deployment: Deployment) -> None:
    values = {key: value for key, value in vars(deployment).items() if key not in ("folder", "members")}
    members = "".join("\n[[site]]\n" + _toml(vars(member)) for member in deployment.members)
    write_atomically(deployment.folder / DEPLOYMENT, _toml(values) + members)


def write_site(config: SiteConfig) -> None:
    values = {key: value for key, value in vars(config).items() if key != "folder"}
    write_atomically(config.folder / SITE, _toml(values))


def _toml(values: dict[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def _written(experiment: Experiment, inputs: Inputs, tokens: bool) -> dict[str, Any]:
    return {
        "experiment": dataclasses.asdict(experiment),
        "inputs": inputs._asdict(),
        "tokens": tokens,
    }


def _read(path: Path, parse: Any) -> dict[str, Any]:
    try:
        return parse(path.read_text())
    except OSError:
        raise UserError(f"there is no {path}; make a deployment with idiolect deploy init") from None
    except ValueError as error:
        raise UserError(f"{path} cannot be read: {error}") from None
