"""`idiolect deploy`: makes, starts, watches and changes a deployment over Flower."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from idiolect.cli.app import Command, app
from idiolect.cli.options import (
    Changes,
    DataDir,
    Json,
    ScenarioChoice,
    Set,
    SiteSceneOptions,
    with_option_groups,
)
from idiolect.cli.settings import settings_of, start_from
from idiolect.cli.terminal import console_of_output, print_line, print_table, watched
from idiolect.errors import UserError
from idiolect.experiments import Execution, Experiment, with_settings
from idiolect.experiments.run import with_public_samples
from idiolect.methods import method as read_method
from idiolect.own_code import load_code
from idiolect.reports.judged_metric import metric_title

if TYPE_CHECKING:
    from idiolect.deploy.audit import AuditLog

__all__ = ["deploy_app"]

FLOWER = "1.41."
READING = ("status", "log")  # commands that change nothing
ENDING = ("down",)  # commands that must work where nothing can be written
HEADINGS = ("Site", "Now", "Round", "Loss")  # and what the sites are judged by


class FlowerApplication(typer.Typer):
    """An application whose commands refuse to run without Flower; their help needs none."""

    def command(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        return super().command(*arguments, **{"cls": NeedsFlower, **options})


class NeedsFlower(Command):
    """A command that refuses to run without Flower, and that the audit log of its deployment or site notes."""

    def invoke(self, ctx: click.Context) -> Any:
        from idiolect.deploy.audit import audit_log_of  # noqa: PLC0415 - starts quickly without it

        _refuse_without_flower()
        folder = Path(ctx.params["folder"])
        before = audit_log_of(folder)
        if before is not None:
            self._note(before, ctx)
        result = super().invoke(ctx)
        if before is None and (made := audit_log_of(folder)) is not None:
            self._note(made, ctx)
        return result

    def _note(self, log: AuditLog, ctx: click.Context) -> None:
        name = str(ctx.command.name)
        if name in READING:
            return
        try:
            log.command(name, {key: value for key, value in ctx.params.items() if key != "folder"})
        except OSError as error:
            if name not in ENDING:
                raise
            message = (
                f"idiolect: {log.path} cannot be written ({error.strerror}); {name} goes on and is not in it"
            )
            Console(stderr=True, soft_wrap=True).print(message, highlight=False, markup=False)


deploy_app = FlowerApplication(no_args_is_help=True)
app.add_typer(deploy_app, name="deploy", help="Run a method where the data are, over Flower.")

Folder = Annotated[Path, typer.Argument(help="The deployment's folder.")]
SiteFolder = Annotated[Path, typer.Argument(help="The site's folder.")]


def _refuse_without_flower() -> None:
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise UserError("deploy needs Flower; install it with pip install 'idiolect[flower]'") from None
    if not found.startswith(FLOWER):
        raise UserError(
            f"deploy needs Flower {FLOWER}x and found {found}; install it with pip install 'idiolect[flower]'"
        )


@dataclass(frozen=True)
class SiteOptions:
    """Where the data are, how sites reach the server, how long it waits for them, and what they bring."""

    data_dir: DataDir = None
    address: Annotated[str, typer.Option(help="host:port at which sites reach the server.")] = (
        "127.0.0.1:9093"
    )
    plain: Annotated[bool, typer.Option("--plain", help="Use no TLS and no site keys; on loopback only.")] = (
        False
    )
    min_sites: Annotated[
        int | None, typer.Option(help="Answers that a round needs; by default 2, or 1 with a single site.")
    ] = None
    deadline: Annotated[float, typer.Option(help="Seconds that a round waits for its sites.")] = 3600.0
    wait: Annotated[float, typer.Option(help="Seconds that the start waits for all sites.")] = 60.0
    grace: Annotated[float, typer.Option(help="Seconds that a site may be away in a round.")] = 30.0
    checkpoints: Annotated[
        int, typer.Option(help="Rounds to which the server and its sites can go back.")
    ] = 5
    norm_bound: Annotated[float, typer.Option(help="How many times as long as usual an upload may be.")] = 1e6
    secure_aggregation: Annotated[
        bool, typer.Option("--secure-aggregation", help="Show the server sums over sites alone.")
    ] = False
    secure_threshold: Annotated[
        int | None, typer.Option(help="Fewest sites in a sum; by default more than two thirds of a round's.")
    ] = None
    no_data: Annotated[bool, typer.Option("--no-data", help="Sites bring rows of their own.")] = False
    code: Annotated[
        Path | None, typer.Option(help="A file that registers methods or networks of your own.")
    ] = None


@deploy_app.command("init")
@with_option_groups
def init_command(
    *,
    folder: Folder = Path("deployment"),
    method: Annotated[str | None, typer.Option(help="A method, with options: 'map(alpha=0.5)'.")] = None,
    sites: Annotated[
        int | None, typer.Option(help="Number of sites; by default 3, or the scenario's clients.")
    ] = None,
    choice: ScenarioChoice,
    scene: SiteSceneOptions,
    settings: Set = None,
    options: SiteOptions,
) -> None:
    """Write a Flower app, a folder for the server and one for each site."""
    from idiolect.deploy.configuration import individual_uploads, read_plan  # noqa: PLC0415 - needs the extra
    from idiolect.deploy.create_deployment import DeploymentOptions, create_deployment  # noqa: PLC0415
    from idiolect.deploy.server import privacy_notice  # noqa: PLC0415

    if options.code is not None:
        load_code(options.code)
    chosen = settings_of(Changes(settings), scene, clients=sites)
    given = asdict(options)
    data_dir, given["with_data"] = given.pop("data_dir"), not given.pop("no_data")
    experiment = _experiment(method, choice, chosen, data_dir)
    made = create_deployment(experiment, folder, DeploymentOptions(**given), data_dir)
    if sentence := individual_uploads(read_method(experiment.method)):
        print_line(f"Note: {sentence}.")
    if sentence := privacy_notice(made):
        print_line(f"Note: {sentence}.")
    if (sums := read_plan(made.server).sums) is not None:
        print_line(f"With secure aggregation: the server sees sums of at least {sums.threshold} sites.")
    print_line(f"{len(made.sites)} sites and a server for {experiment.method}: {made.folder}")
    print_line(f"Next, a trial on this machine: idiolect deploy up {folder} --local {len(made.sites)}")


def _experiment(
    method: str | None, choice: ScenarioChoice, settings: dict[str, Any], data_dir: Path | None
) -> Experiment:
    """Returns the experiment of a deployment; every site takes part in every round unless a setting says otherwise."""
    execution = Execution(engine="loop", device="cpu", data_dir=data_dir)
    base_of, _ = start_from(choice, settings, watched(execution) if choice.scenario else execution)
    own = Experiment(method=method or "fedper", clients=3, participation_rate=1.0)
    experiment = with_settings(base_of(method) if base_of else own, settings)
    return with_public_samples(experiment, [experiment.method])


@deploy_app.command("up")
def up_command(
    folder: Folder = Path("deployment"),
    local: Annotated[int, typer.Option(help="Sites to start on this machine, for a trial.", min=0)] = 0,
) -> None:
    """Start the server here, and with --local sites on loopback; what runs already stays."""
    from idiolect.deploy.configuration import read_deployment  # noqa: PLC0415
    from idiolect.deploy.processes import bring_up  # noqa: PLC0415
    from idiolect.deploy.status import status  # noqa: PLC0415

    deployment = read_deployment(folder)
    started = bring_up(deployment, local)
    sites = status(deployment)["sites"]
    for name, process in started.items():
        here = f": {sites[name]['here']}" if name in sites else ""
        print_line(f"{name} runs as process {process}{here}")
    print_line(f"Next: idiolect deploy run {folder}")


@deploy_app.command("run")
def run_command(
    folder: Folder = Path("deployment"),
    as_json: Json = False,
) -> None:
    """Start training, or go on after the last complete round, and show progress per site."""
    from idiolect.deploy.configuration import individual_uploads, read_deployment, read_plan  # noqa: PLC0415
    from idiolect.deploy.server import privacy_notice  # noqa: PLC0415
    from idiolect.deploy.status import start_run, watch  # noqa: PLC0415

    deployment = read_deployment(folder)
    plan = read_plan(deployment.server)
    view = SiteTable(quiet=as_json)
    if sentence := individual_uploads(read_method(plan.experiment.method)):
        view.say(f"Note: {sentence}.")
    if sentence := privacy_notice(deployment):
        view.say(f"Note: {sentence}.")
    if not start_run(deployment):
        view.say("the run is on its way; watching it")
    with view:
        found = watch(deployment, view.show)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print_status(console_of_output(), found)


@deploy_app.command("status")
def status_command(folder: Folder = Path("deployment"), as_json: Json = False) -> None:
    """Show what runs here, how many rounds are done, and each site's last word."""
    from idiolect.deploy.configuration import read_deployment  # noqa: PLC0415
    from idiolect.deploy.status import status  # noqa: PLC0415

    found = status(read_deployment(folder))
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print_status(console_of_output(), found)


@deploy_app.command("log")
def log_command(
    folder: Annotated[Path, typer.Argument(help="The folder of the deployment, or of a site.")] = Path(
        "deployment"
    ),
    as_json: Json = False,
) -> None:
    """Show the audit log: who commanded, joined, was left out and why, and whom each round used."""
    from idiolect.deploy.audit import audit_log_of  # noqa: PLC0415

    log = audit_log_of(folder)
    if log is None:
        raise UserError(f"{folder} is the folder of neither a deployment nor a site")
    faults = []
    for line, fault in log.lines():
        faults += [fault] if fault else []
        print_line(
            json.dumps({**line, **({"fault": fault} if fault else {})})
            if as_json
            else _line_of_log(line, fault)
        )
    if faults:
        raise UserError("; ".join(faults))


def _line_of_log(line: dict[str, Any], fault: str) -> str:
    """Returns a line of the audit log in words, without characters that a terminal would act on."""
    facts = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in line.items()
        if key not in ("at", "event") and value not in ("", {}, [])
    ]
    text = " ".join(
        [str(line.get("at", "")), str(line.get("event", "")), *facts, *([f"({fault})"] if fault else [])]
    )
    return "".join(character if character.isprintable() else "?" for character in text)


@deploy_app.command("down")
def down_command(folder: Folder = Path("deployment")) -> None:
    """End all processes of the deployment on this machine; every state stays on disk."""
    from idiolect.deploy.configuration import read_deployment  # noqa: PLC0415
    from idiolect.deploy.processes import stop_processes  # noqa: PLC0415

    ended = stop_processes(read_deployment(folder).folder)
    print_line(f"ended {len(ended)} processes" if ended else "nothing was running")


@deploy_app.command("site")
def site_command(folder: SiteFolder) -> None:
    """Run a site here until it is told to end; its data and private models stay on this machine."""
    from idiolect.deploy.site_process import run_site  # noqa: PLC0415

    run_site(folder)


@deploy_app.command("key")
def key_command(folder: SiteFolder) -> None:
    """Make a new key for a site on its own machine; the server gets the public half."""
    from idiolect.deploy.configuration import read_site  # noqa: PLC0415
    from idiolect.deploy.create_deployment import replace_key  # noqa: PLC0415

    config = read_site(folder)
    public = replace_key(config.folder)
    print_line(f"Send {public} to the server: idiolect deploy register FOLDER {config.name} {public.name}")


@deploy_app.command("register")
def register_command(
    folder: Annotated[
        Path, typer.Argument(help="The folder of the deployment, or of a site that knows the others' keys.")
    ],
    site: Annotated[str, typer.Argument(help="Name of the site.")],
    public: Annotated[Path, typer.Argument(help="File of its public key.")],
) -> None:
    """Make a site's new public key the one that the server knows, or another site; it counts from the next start on."""
    from idiolect.deploy.configuration import SITE, read_deployment  # noqa: PLC0415
    from idiolect.deploy.create_deployment import meet, register_key  # noqa: PLC0415

    if (folder / SITE).exists():
        meet(folder, site, public)
    else:
        register_key(read_deployment(folder), site, public)


@deploy_app.command("add")
def add_command(folder: Folder, site: Annotated[str, typer.Argument(help="Name of the new site.")]) -> None:
    """Add a site that comes later; it joins by the method's rule for newcomers."""
    from idiolect.deploy.configuration import read_deployment, read_plan  # noqa: PLC0415
    from idiolect.deploy.create_deployment import add_site  # noqa: PLC0415

    deployment = read_deployment(folder)
    larger = add_site(deployment, read_plan(deployment.server), site)
    where = larger.site_folder(larger.sites[-1])
    print_line(f"{where} is ready; put its rows into {where / 'data' / 'data.npz'} and start it")


@deploy_app.command("rollback")
def rollback_command(
    folder: Folder = Path("deployment"),
    *,
    to: Annotated[int, typer.Option("--to", help="Rounds that stay; 0 starts from the beginning.", min=0)],
) -> None:
    """Take the server back to an earlier round; sites go back with it when it goes on."""
    from idiolect.deploy.configuration import read_deployment  # noqa: PLC0415
    from idiolect.deploy.rollback import roll_back  # noqa: PLC0415

    roll_back(read_deployment(folder), to, print_line)
    print_line(f"The server stands after round {to}. Next: idiolect deploy run {folder}")


@deploy_app.command("exclude")
def exclude_command(folder: Folder, site: Annotated[str, typer.Argument(help="Name of the site.")]) -> None:
    """Leave a site out from the next round on; it is asked nothing until it is included again."""
    from idiolect.deploy.configuration import read_deployment  # noqa: PLC0415
    from idiolect.deploy.rollback import exclude_site  # noqa: PLC0415

    made = exclude_site(read_deployment(folder), site)
    print_line(f"excluded: {', '.join(made.excluded)}")


@deploy_app.command("include")
def include_command(folder: Folder, site: Annotated[str, typer.Argument(help="Name of the site.")]) -> None:
    """Take an excluded site in again, from the next round on."""
    from idiolect.deploy.configuration import read_deployment  # noqa: PLC0415
    from idiolect.deploy.rollback import include_site  # noqa: PLC0415

    made = include_site(read_deployment(folder), site)
    print_line(f"excluded: {', '.join(made.excluded) or 'none'}")


@deploy_app.command("restore")
def restore_command(
    folder: SiteFolder,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Give the private state up and start from nothing.")
    ] = False,
) -> None:
    """Put a damaged private state aside and go on from the backup before it."""
    from idiolect.deploy.configuration import read_plan, read_site  # noqa: PLC0415
    from idiolect.deploy.keys import keep_to_owner  # noqa: PLC0415
    from idiolect.deploy.site import private_store  # noqa: PLC0415

    config = read_site(folder)
    keep_to_owner(config.folder)
    store = private_store(config, read_plan(config.folder), [])
    if fresh:
        store.start_afresh()
        print_line(f"{config.name} starts from nothing")
    else:
        print_line(f"{config.name} goes on from its private state of round {store.step_back().round + 1}")


class SiteTable:
    """Shows the sites on standard error: a table that is updated in a terminal, elsewhere a line per round."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)
        self._live = Live(console=self.console, refresh_per_second=4)
        self._told = 0

    def __enter__(self) -> SiteTable:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def say(self, sentence: str) -> None:
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def show(self, found: dict[str, Any]) -> None:
        if self.console.is_terminal:
            table = Table(*_headings(found), title=_title(found), title_justify="left")
            for row in _rows(found):
                table.add_row(*row)
            self._live.update(table)
        elif found["round"] > self._told:
            self._told = found["round"]
            took_part = {name for name, site in found["sites"].items() if site.get("round", 0) >= self._told}
            sites = [f"{name} loss {loss}" for name, _, _, loss, _ in _rows(found) if name in took_part]
            here = f"round {found['round']}/{found['rounds']}"
            self.say(f"{here}: {', '.join(sites)}" if sites else here)


def _print_status(console: Console, found: dict[str, Any]) -> None:
    print_table(console, [_headings(found), *_rows(found)], title=_title(found), words=2)
    for event in found["events"][-10:]:
        console.print(f"- {event}", highlight=False, markup=False)
    is_recorded = found["run"] and Path(found["run"]).is_dir()
    for sentence in (found["message"], f"Record: {found['run']}" if is_recorded else ""):
        if sentence:
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)


def _title(found: dict[str, Any]) -> str:
    server = "server runs here" if found["server_runs_here"] else "no server here"
    return f"{found['status']}, round {found['round']} of {found['rounds']}; {server}"


def _headings(found: dict[str, Any]) -> list[str]:
    return [*HEADINGS, metric_title(_judged_by(found))]


def _judged_by(found: dict[str, Any]) -> str:
    named = (site["judged_by"] for site in found["sites"].values() if "judged_by" in site)
    return str(next(named, "accuracy"))


def _now(site: dict[str, Any]) -> str:
    """Returns what a site does; one that runs here and does not reach the server is not taken for connected."""
    if site["excluded"]:
        return "is excluded"
    if site["runs_here"] and site["here"] != "connected":
        return str(site["here"])
    return str(site.get("now", "runs here" if site["runs_here"] else "-"))


def _rows(found: dict[str, Any]) -> list[list[str]]:
    rows, metric = [], _judged_by(found)
    for name, site in found["sites"].items():
        loss, score = site.get("loss"), site.get(metric)
        rows.append(
            [
                name,
                _now(site),
                str(site.get("round", "-")),
                "-" if loss is None else f"{loss:.3f}",
                "-" if score is None else f"{score:.1%}" if metric == "accuracy" else f"{score:.4g}",
            ]
        )
    return rows
