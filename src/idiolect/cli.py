"""The command line: thin, every command one call of the Python interface."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from idiolect import data, methods, reproduction_pages, scenario_pages
from idiolect.bench import SIZES, Grid, bench, rows_of_table, workloads
from idiolect.bench import notes_of as bench_notes
from idiolect.calls import split_outside_brackets
from idiolect.engines import Where, place
from idiolect.errors import UserError
from idiolect.experiments import Comparison, Experiment, compare, prepare, run
from idiolect.experiments.demo import DEMO_METHODS, QUICK
from idiolect.experiments.papers import papers
from idiolect.experiments.reproduce import reproduce
from idiolect.experiments.scenarios import find, refuse_missing, uses
from idiolect.records import Run
from idiolect.reports import gather, notes_of, plain_rows, summarise, write_page, write_report
from idiolect.terminal import Terminal, print_table

__all__ = ["TINY", "app", "main", "tried_pairs"]

FLAGS = {"method": "--method or --methods", "seed": "--seed"}
TINY = Experiment(
    dataset="synthetic(n_clients=3, samples_per_client=20, n_features=4, n_classes=3)",
    partition="by_id",
    clients=3,
    model="persfl_dnn(hidden=4)",
    rounds=2,
    participation_rate=1.0,
    local_epochs=1,
    batch_size=8,
    evaluate_every=2,
    public=6,
)  # on which pairs of parts are tried

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
datasets_app = typer.Typer(invoke_without_command=True, no_args_is_help=False)
app.add_typer(datasets_app, name="datasets", help="List the datasets, or get one.")

Out = Annotated[Path, typer.Option("--out", help="Folder in which the run's folder is made.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of the datasets [IDIOLECT_DATA].")]
Engine = Annotated[str, typer.Option(help="auto, loop, cohort or pool; changes no number.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Store = Annotated[str, typer.Option(help="Private state: auto, device, host or disk; changes no number.")]
StoreCache = Annotated[float | None, typer.Option(help="Megabytes of a disk store kept in memory.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="key=value of any setting; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="Three rounds on ten small clients, to see that it works.")
]
Dataset = Annotated[str | None, typer.Option(help="See idiolect datasets.")]
Model = Annotated[str | None, typer.Option(help="A network of the zoo, such as lenet_map or vgg8_bn.")]
Partition = Annotated[str | None, typer.Option(help="How clients differ, such as label_k(k=3).")]
Clients = Annotated[int | None, typer.Option(help="Number of clients; 0: as many as the data have.")]
Rounds = Annotated[int | None, typer.Option(help="Communication rounds.")]
Precision = Annotated[str | None, typer.Option(help="float32 or float64.")]
ScenarioName = Annotated[str | None, typer.Option("--scenario", help="See idiolect scenarios.")]
Preset = Annotated[str, typer.Option(help="Of the scenario: paper, official or clipped.")]


@app.callback()
def _idiolect() -> None:
    """Personalised federated learning: one shared model, and one of each client's own."""


@app.command("run")
def run_command(
    method: Annotated[str | None, typer.Option(help="A method, with options: 'map(alpha=0.5)'.")] = None,
    scenario: ScenarioName = None,
    preset: Preset = "paper",
    dataset: Dataset = None,
    partition: Partition = None,
    clients: Clients = None,
    model: Model = None,
    rounds: Rounds = None,
    precision: Precision = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random draw.")] = None,
    settings: Set = None,
    quick: Quick = False,
    engine: Engine = "auto",
    device: Device = "auto",
    data_dir: DataDir = None,
    out: Out = Path("runs"),
    resume: Resume = False,
    store: Store = "auto",
    store_cache: StoreCache = None,
    as_json: Json = False,
) -> None:
    """Run one method; without --method, a small comparison of nine on the data inside the package."""
    chosen = _settings(
        quick,
        settings,
        dataset=dataset,
        partition=partition,
        clients=clients,
        model=model,
        rounds=rounds,
        precision=precision,
        seed=seed,
    )
    where = {"engine": engine, "device": device, "data_dir": data_dir, "out": out, "resume": resume}
    where |= {"store": store, "store_cache": store_cache}
    if method is None and scenario is None:
        first = chosen.pop("seed", 0)
        _compare(list(DEMO_METHODS), [first], chosen, where, as_json)
        return
    terminal, base, notes = _terminal(where, 1), None, []
    if scenario is not None:
        base_of, notes = _scenario(scenario, preset, chosen, data_dir, terminal)
        base = base_of(method or papers()[find(scenario).paper].method)
    done = run(base or method or "", watcher=terminal, notes=notes, **where, **chosen)
    folder = Path(out) / done.manifest["name"]
    write_report([done], folder)
    _show([done], folder, as_json)


@app.command("compare")
def compare_command(
    methods_: Annotated[
        str | None,
        typer.Option(
            "--methods", help="Methods separated by commas, or all; else those of the scenario, or all."
        ),
    ] = None,
    scenario: ScenarioName = None,
    preset: Preset = "paper",
    dataset: Dataset = None,
    partition: Partition = None,
    clients: Clients = None,
    model: Model = None,
    rounds: Rounds = None,
    precision: Precision = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 1,
    settings: Set = None,
    quick: Quick = False,
    engine: Engine = "auto",
    device: Device = "auto",
    data_dir: DataDir = None,
    out: Out = Path("runs"),
    resume: Resume = False,
    store: Store = "auto",
    store_cache: StoreCache = None,
    as_json: Json = False,
) -> None:
    """Run several methods on the same clients, splits and batches; write a table and pictures."""
    chosen = _settings(
        quick,
        settings,
        dataset=dataset,
        partition=partition,
        clients=clients,
        model=model,
        rounds=rounds,
        precision=precision,
    )
    where = {"engine": engine, "device": device, "data_dir": data_dir, "out": out, "resume": resume}
    where |= {"store": store, "store_cache": store_cache}
    names = _names(methods_ or "all")
    if methods_ is None and scenario is not None:
        names = list(uses(find(scenario).name).methods)
    names = methods.names() if names == ["all"] else names
    _compare(names, list(range(seed, seed + seeds)), chosen, where, as_json, scenario, preset)


@app.command("methods")
def methods_command(
    name: Annotated[str | None, typer.Argument(help="A method whose card to print.")] = None,
    personalises: Annotated[
        str | None, typer.Option(help=f"Only methods that personalise {', '.join(methods.PERSONALISES)}.")
    ] = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Try every two parts together (half a minute).")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the methods, print the card of one, or try which parts can be combined."""
    if pairs:
        _show_pairs(tried_pairs(), as_json)
        return
    cards = [methods.card(name)] if name else methods.of_kind(personalises)
    if as_json:
        print(json.dumps([card._asdict() for card in cards], indent=2))
    elif name:
        _console().print(methods.page(cards[0]), highlight=False, markup=False)
    else:
        rows = [["Name", "Method", "Personalises", "Predictor", "Down", "Up", "Idea"]]
        rows += [[c.name, c.label, c.personalises, c.headline, c.down, c.up, c.idea] for c in cards]
        print_table(_console(), rows, words=7)


@app.command("bench")
def bench_command(
    models_: Annotated[
        str, typer.Option("--models", help=f"Workloads separated by commas: {', '.join(workloads())}.")
    ] = ",".join(Grid.workloads),
    engines: Annotated[
        str, typer.Option(help="Engines separated by commas; auto is whichever is picked.")
    ] = (",".join(Grid.engines)),
    clients: Annotated[str, typer.Option(help="Cohort sizes separated by commas.")] = "20",
    precision: Annotated[str, typer.Option(help="Precisions separated by commas.")] = "float32",
    method: Annotated[
        str, typer.Option(help="fedavg, map, persfl, superfed-mm; commas for several.")
    ] = "fedavg",
    device: Device = "auto",
    population: Annotated[int, typer.Option(help="Clients that there are.")] = Grid.population,
    samples: Annotated[int, typer.Option(help="Training images of a client.")] = Grid.samples,
    batch_size: Annotated[int, typer.Option(help="Images in a batch.")] = Grid.batch_size,
    sizes: Annotated[str, typer.Option(help=f"Of the clients: {' or '.join(SIZES)}.")] = Grid.sizes,
    repeats: Annotated[int, typer.Option(help="Timed rounds of every row.")] = Grid.repeats,
    warmup: Annotated[int, typer.Option(help="Rounds before them.")] = Grid.warmup,
    peers: Annotated[bool, typer.Option("--peers", help="Time pfl-research and Flower as well.")] = False,
    as_json: Json = False,
) -> None:
    """Time the engines beside a plain loop of torch, turn by turn (about four minutes on two cores)."""
    cohorts = tuple(_whole("clients", text) for text in _listed(clients))
    grid = Grid(
        workloads=_listed(models_),
        engines=_listed(engines),
        clients=cohorts,
        precisions=_listed(precision),
        methods=_listed(method),
        device=device,
        population=population,
        samples=samples,
        batch_size=batch_size,
        sizes=sizes,
        repeats=repeats,
        warmup=warmup,
        peers=peers,
    )
    with Console(stderr=True).status("starting") as status:
        report = bench(grid, status.update)
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
        return
    console = _console()
    print_table(console, rows_of_table(report), words=3)
    for note in bench_notes(report):
        console.print(f"- {note}", highlight=False, markup=False)


@app.command("scenarios")
def scenarios_command(
    name: Annotated[str | None, typer.Argument(help="A scenario to explain.")] = None,
    preset: Preset = "paper",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """List the papers' experiments, or explain one: every setting and where it comes from."""
    if as_json:
        found: Any = scenario_pages.listing(data_dir)
        if name:
            found = scenario_pages.as_json(find(name), preset, data_dir)
        print(json.dumps(found, indent=2, default=str))
    elif name:
        scenario_pages.print_page(_console(), find(name), preset, data_dir)
    else:
        scenario_pages.print_listing(_console(), data_dir)


@app.command("reproduce")
def reproduce_command(
    id: Annotated[str, typer.Argument(help="A table or figure, such as map-table2 or fedphp-fig4.")],
    column: Annotated[
        str | None, typer.Option(help="Columns of the table, or scenarios of the figure, by commas.")
    ] = None,
    methods_: Annotated[str | None, typer.Option("--methods", help="Methods separated by commas.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds.", min=1)] = 1,
    preset: Preset = "paper",
    best_of_grid: Annotated[
        bool, typer.Option("--best-of-grid", help="Run all settings of MAP's authors and take the best.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Embedded data and few rounds; never compared with the paper.")
    ] = False,
    engine: Engine = "auto",
    device: Device = "auto",
    data_dir: DataDir = None,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Make a paper's table or figure: run what is missing, go on after a stop, show it beside the paper's."""
    where: dict[str, Any] = {"engine": engine, "device": device}
    done = reproduce(
        id,
        columns=_names(column),
        methods=_names(methods_),
        seeds=seeds,
        preset=preset,
        best_of_grid=best_of_grid,
        quick=quick,
        out=out,
        data_dir=data_dir,
        watcher=_terminal(where, 1),
        **where,
    )
    if as_json:
        print(json.dumps(reproduction_pages.as_json(done), indent=2))
    else:
        reproduction_pages.print_reproduction(_console(), done)
    if done.failures or (done.entries and all(one.value is None for one in done.entries)):
        sys.exit(2)


@app.command("report")
def report_command(
    runs: Annotated[list[Path], typer.Argument(help="Runs, or folders that hold runs.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("report"),
    formats: Annotated[
        str, typer.Option("--format", help="Files beside the page, by commas: png, svg, pdf, md, csv, tex.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Make one page of finished runs that opens offline; with --format, pictures and tables beside it."""
    passed_over: list[str] = []
    console = Console(stderr=True, soft_wrap=True)

    def say(sentence: str) -> None:
        passed_over.append(sentence)
        console.print(f"idiolect: {sentence}", style="yellow", highlight=False, markup=False)

    found = gather(runs, say)
    beside = write_report(found, out, _listed(formats)) if _listed(formats) else []
    page = write_page(found, out / "report.html", passed_over)
    if as_json:
        files = [str(path) for path in (page, *beside)]
        names = [run.manifest["name"] for run in found]
        print(json.dumps({"files": files, "runs": names, "passed_over": passed_over}, indent=2))
        return
    print(page)


@datasets_app.callback()
def datasets_command(context: typer.Context, data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the datasets and where they are looked for."""
    if context.invoked_subcommand is not None:
        return
    found = data.describe(data_dir)
    if as_json:
        print(json.dumps([row._asdict() for row in found], indent=2, default=str))
        return
    rows = [["Name", "Samples", "Classes", "Shape", "Licence", "Status", "Where"]]
    print_table(_console(), rows + [[str(cell) for cell in row] for row in found], words=7)


@datasets_app.command("get")
def datasets_get(name: Annotated[str, typer.Argument(help="The dataset.")], data_dir: DataDir = None) -> None:
    """Download a dataset, check its checksums, and lay it out."""
    console = Console(stderr=True)
    with console.status(f"getting {name}"):
        folder = data.get(name, data_dir)
    print(folder)


def main() -> None:
    """Runs the command line: a user's mistake is one sentence on standard error and exit code 2."""
    try:
        app()
    except UserError as error:
        message = f"idiolect: {error}"
        Console(stderr=True, soft_wrap=True).print(message, style="red", highlight=False, markup=False)
        sys.exit(2)


def _compare(
    names: list[str],
    seeds: list[int],
    settings: dict[str, Any],
    where: dict[str, Any],
    as_json: bool,
    scenario: str | None = None,
    preset: str = "paper",
) -> None:
    terminal = _terminal(where, len(names) * len(seeds))
    extra: dict[str, Any] = {}
    if scenario is not None:
        base_of, notes = _scenario(scenario, preset, settings, where["data_dir"], terminal)
        extra = {"experiment": base_of, "notes": notes}
    done: Comparison = compare(names, seeds=seeds, watcher=terminal, **extra, **where, **settings)
    _show(done.runs, done.folder, as_json)


def _scenario(
    name: str, preset: str, settings: dict[str, Any], data_dir: Path | None, terminal: Terminal
) -> tuple[Callable[[str], Experiment], list[str]]:
    """What gives a method its experiment, and the notes of its runs; the warning is printed."""
    found = find(name)
    found.given(preset)
    if "dataset" not in settings:
        refuse_missing(found, data_dir)
    warning = found.warning_of(preset)
    if warning:
        terminal.say(f"warning: {warning}")
    notes = [f"scenario {found.name}, preset {preset}", *([f"warning: {warning}"] if warning else [])]
    return lambda method: found.experiment(method, preset), notes


def _terminal(where: dict[str, Any], runs: int) -> Terminal:
    """The watcher, after one line that says which engine was chosen and why."""
    chosen = place(where["engine"], where["device"])
    terminal = Terminal(Console(stderr=True), runs)
    if terminal.console.is_terminal:
        terminal.say(f"engine {chosen.engine} on {chosen.device}: {chosen.reason}")
    return terminal


def _show(runs: list[Run], folder: Path, as_json: bool) -> None:
    summary = summarise(runs)
    if as_json:
        lines = json.loads(summary.to_json(orient="records"))
        print(json.dumps({"folder": str(folder), "methods": lines, "notes": notes_of(runs)}, indent=2))
        return
    console = _console()
    print_table(console, plain_rows(summary))
    for note in notes_of(runs):
        console.print(f"- {note}", highlight=False, markup=False)
    where = f"Table, pictures and records: {folder}"
    console.print(where, highlight=False, markup=False, soft_wrap=True)


def _settings(quick: bool, pairs: list[str] | None, **flags: Any) -> dict[str, Any]:
    """Settings from --quick, then --set, then the flags of their own."""
    chosen: dict[str, Any] = dict(QUICK) if quick else {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UserError(f"--set {pair!r} has no value; write --set key=value")
        if key.strip() in FLAGS:
            raise UserError(f"--set {key.strip()} is not for settings; use {FLAGS[key.strip()]}")
        chosen[key.strip()] = _value(value)
    return chosen | {name: value for name, value in flags.items() if value is not None}


def _names(text: str | None) -> list[str]:
    """Names separated by commas."""
    return [name for name in split_outside_brackets(text or "", ",") if name]


def _value(text: str) -> Any:
    """A Python literal, or the text itself: a name, or a call such as label_k(k=2)."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()


def _listed(text: str) -> tuple[str, ...]:
    return tuple(piece.strip() for piece in text.split(",") if piece.strip())


def _whole(option: str, text: str) -> int:
    if not text.isdecimal():
        raise UserError(f"--{option} must be whole numbers separated by commas, got {text!r}")
    return int(text)


def tried_pairs() -> list[methods.Pair]:
    """Every two parts, prepared on a federation so small that it takes a blink."""

    def attempt(method: str) -> None:
        prepare(replace(TINY, method=method), Where("loop", "cpu", "as asked"))

    with Console(stderr=True).status("trying every two parts"):
        return list(methods.pairs(attempt))


def _show_pairs(found: list[methods.Pair], as_json: bool) -> None:
    if as_json:
        print(json.dumps([pair._asdict() for pair in found], indent=2))
        return
    rows = [["Part", "Part", "Together", "Why not"]]
    rows += [[p.first, p.second, "refused" if p.refused else "ok", p.refused] for p in found]
    print_table(_console(), rows, words=4)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=160)
