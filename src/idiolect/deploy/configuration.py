"""The configuration files of a deployment: the experiment, the server's settings, and each site's own.

``experiment.json`` is what server and sites agree on, ``deployment.toml`` what the server is told, and ``site.toml``
what a site is told of itself.  ``deploy init`` writes all of them.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from idiolect.core import Method
from idiolect.deploy.code_digest import code_digest, load_own_code
from idiolect.errors import UserError, refuse_outside
from idiolect.experiments import Experiment, with_settings
from idiolect.experiments.setting import Inputs
from idiolect.option_parsing import is_of_kind
from idiolect.records import spec_hash
from idiolect.records.atomic_files import write_atomically

__all__ = [
    "MOST_CHECKPOINTS",
    "Deployment",
    "DeploymentPlan",
    "SiteConfig",
    "SiteEntry",
    "SumRules",
    "individual_uploads",
    "make_plan",
    "read_deployment",
    "read_plan",
    "read_site",
    "refuse_name",
    "write_deployment",
    "write_plan",
    "write_site",
]

T = TypeVar("T")
MOST_CLIENTS = 10**6
PLAN, SITE, DEPLOYMENT = "experiment.json", "site.toml", "deployment.toml"
MOST_CHECKPOINTS = 100  # and rounds of which a site keeps its private state, whatever a server asks


@dataclass(frozen=True)
class SumRules:
    """What server and sites agree on for secure aggregation.

    Args:
        threshold: the fewest sites in a sum, and those that must help to take its masks away.
        rows: W, the most rows that a site may weigh, a power of two; 1 where every site weighs 1.
    """

    threshold: int
    rows: int


@dataclass(frozen=True)
class DeploymentPlan:
    """The experiment that server and sites agree on.

    Args:
        inputs: what a network must know of the data.
        tokens: rows are sequences of token ids, not images.
        identity: hash of the experiment and its inputs; every message names it.
        code: digest of the code that decides numbers.
        sums: the rules of secure aggregation; None where the server sees single uploads.
    """

    experiment: Experiment
    inputs: Inputs
    tokens: bool
    identity: str
    code: str
    sums: SumRules | None = None

    @property
    def population(self) -> int:
        """Returns the number of sites that train; newcomers are not counted."""
        return self.experiment.clients - self.experiment.newcomers


@dataclass(frozen=True)
class SiteEntry:
    """A site as the server's configuration lists it.

    Args:
        client: its number in the federation.
        number: its number in the partition, which decides how its rows are split.
        rows: that it has at most, where the server was told; no upload may weigh more.
    """

    name: str
    client: int
    number: int
    rows: int | None = None


@dataclass(frozen=True)
class Deployment:
    """The server's settings.

    Args:
        address: host and port at which sites reach the server.
        plain: connections have no certificates; on loopback only.
        deadline: seconds that a round waits for the sites it selected.
        wait: seconds that the server waits for all sites before the first round.
        grace: seconds that a site may be away in a round before it is left out.
        min_sites: replies that a round needs.
        checkpoints: of the server that are kept, and rounds of which sites keep their private state.
        norm_bound: how many times as long as usual an upload may be.
        excluded: names of sites that are asked nothing.
    """

    folder: Path
    address: str
    plain: bool
    deadline: float
    wait: float
    grace: float
    min_sites: int
    sites: tuple[SiteEntry, ...]
    checkpoints: int = 5
    norm_bound: float = 1e6
    excluded: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[SiteEntry, ...]:
        """Returns the sites that are not excluded."""
        return tuple(site for site in self.sites if site.name not in self.excluded)

    @property
    def local_address(self) -> str:
        """Returns the address at which the server's own machine reaches it."""
        return f"127.0.0.1:{self.address.rpartition(':')[2]}"

    @property
    def server(self) -> Path:
        return self.folder / "server"

    def site_folder(self, site: SiteEntry) -> Path:
        return self.folder / "sites" / site.name


@dataclass(frozen=True)
class SiteConfig:
    """A site's own settings.

    Args:
        experiment, code: the plan's identity and code digest that the site agreed to; it refuses any other.
        data, private: folders, relative to the site's own.
        patience: seconds that a message of the server may take to arrive whole.
        most_epsilon: of differential privacy that the site may spend in this experiment; None is no limit.
        share_scores: tells the server the site's own scores, which secure aggregation otherwise shows as sums alone;
            None in a deployment without it, where every site tells them.
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
    patience: float = 600.0
    most_epsilon: float | None = None
    share_scores: bool | None = None


def make_plan(
    experiment: Experiment, inputs: Inputs, tokens: bool, folder: Path, sums: SumRules | None = None
) -> DeploymentPlan:
    """Returns the plan of an experiment, with the code digest of this installation and of ``folder``."""
    identity = spec_hash(_plan_values(experiment, inputs, tokens, sums))[:16]
    return DeploymentPlan(experiment, inputs, tokens, identity, code_digest(folder)[:16], sums)


def individual_uploads(method: Method) -> str:
    """Returns the notice for a method whose server uses single uploads; empty where it uses means alone."""
    parts = [part.name for part in method.parts if part.individual]
    if not parts:
        return ""
    return (
        f"{method.name} looks at each site's upload by itself, not only at their mean ({', '.join(parts)}): the server "
        "keeps and uses what a single site sent"
    )


def write_plan(folder: Path, plan: DeploymentPlan) -> None:
    text = json.dumps(_plan_values(plan.experiment, plan.inputs, plan.tokens, plan.sums), indent=2)
    write_atomically(folder / PLAN, text + "\n")


def read_plan(folder: Path) -> DeploymentPlan:
    """Reads the plan in a folder of the server or of a site, and loads the folder's own code first."""
    load_own_code(folder)
    found = _read(folder / PLAN, json.loads)
    try:
        experiment = with_settings(Experiment(), found["experiment"])
        sums = _of_kinds(SumRules, found["sums"]) if "sums" in found else None
        return make_plan(experiment, Inputs.of_plain(found["inputs"]), bool(found["tokens"]), folder, sums)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UserError(f"{folder / PLAN} is not the experiment of a deployment: {error} is wrong") from None


def read_deployment(folder: Path) -> Deployment:
    found = _read(Path(folder) / DEPLOYMENT, tomllib.loads)
    try:
        sites = tuple(_of_kinds(SiteEntry, site) for site in found.pop("site", []))
        excluded = tuple(found.pop("excluded", ()))
        fixed = {"folder": Path(folder).resolve(), "sites": sites, "excluded": excluded}
        deployment = _of_kinds(Deployment, found, **fixed)
        _refuse_unusable(deployment)
    except (TypeError, UserError) as error:
        raise UserError(f"{Path(folder) / DEPLOYMENT} is not the file of a deployment: {error}") from None
    return deployment


def _refuse_unusable(deployment: Deployment) -> None:
    """Refuses settings that somebody wrote and no server can work with."""
    for name in ("deadline", "wait", "grace"):
        refuse_outside(name, getattr(deployment, name), 0)
    refuse_outside("min_sites", deployment.min_sites, 1)
    refuse_outside("checkpoints", deployment.checkpoints, 2, MOST_CHECKPOINTS)
    refuse_outside("norm_bound", deployment.norm_bound, 1)
    for site in deployment.sites:
        refuse_name(site.name)
    for what in ("name", "client"):
        values = [getattr(site, what) for site in deployment.sites]
        if twice := [value for value in values if values.count(value) > 1]:
            raise UserError(f"two sites have the {what} {twice[0]}; give each one of its own")


def refuse_name(site: str) -> None:
    """Refuses what cannot name a site, whose name is that of a folder too."""
    if not site.replace("-", "").replace("_", "").isalnum():
        raise UserError(f"{site!r} cannot name a site; use letters, digits and hyphens")


def read_site(folder: Path) -> SiteConfig:
    found = _read(Path(folder) / SITE, tomllib.loads)
    try:
        config = _of_kinds(SiteConfig, found, folder=Path(folder).resolve())
        refuse_outside("patience", config.patience, 0)
        if config.most_epsilon is not None:
            refuse_outside("most_epsilon", config.most_epsilon, 0)
        refuse_name(config.name)
    except (TypeError, UserError) as error:
        raise UserError(f"{Path(folder) / SITE} is not the file of a site: {error}") from None
    return config


def _of_kinds(kind: type[T], values: dict[str, Any], **fixed: Any) -> T:
    """Returns a dataclass of what a file says.

    Raises:
        TypeError: a value is missing, unknown or of another kind; the numbers of clients must be real ones.
    """
    known = dataclasses.fields(kind)  # type: ignore[arg-type]
    if unknown := sorted(set(values) - {one.name for one in known} | set(values) & set(fixed)):
        raise TypeError(f"there is no setting {unknown[0]!r}")
    for one in known:
        if one.name not in {*values, *fixed} and one.default is dataclasses.MISSING:
            raise TypeError(f"{one.name} is missing")
        if one.name in values and not is_of_kind(values[one.name], str(one.type)):
            raise TypeError(f"{one.name} must be {one.type}, got {values[one.name]!r}")
    for name in {"client", "number"} & set(values):
        refuse_outside(name, values[name], 0, MOST_CLIENTS)
    return kind(**values, **fixed)


def write_deployment(deployment: Deployment) -> None:
    values = {key: value for key, value in vars(deployment).items() if key not in ("folder", "sites")}
    sites = "".join("\n[[site]]\n" + _toml(vars(site)) for site in deployment.sites)
    write_atomically(deployment.folder / DEPLOYMENT, _toml(values) + sites)


def write_site(config: SiteConfig) -> None:
    values = {key: value for key, value in vars(config).items() if key != "folder"}
    write_atomically(config.folder / SITE, _toml(values))


def _toml(values: dict[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items() if value is not None)


def _plan_values(
    experiment: Experiment, inputs: Inputs, tokens: bool, sums: SumRules | None
) -> dict[str, Any]:
    found = {"experiment": dataclasses.asdict(experiment), "inputs": inputs.plain(), "tokens": tokens}
    return found if sums is None else {**found, "sums": dataclasses.asdict(sums)}


def _read(path: Path, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    try:
        return parse(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"there is no {path}; make a deployment with idiolect deploy init") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
