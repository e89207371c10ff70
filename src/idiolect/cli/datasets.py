"""`idiolect datasets`: the datasets, listed or downloaded, and a check of data of the user's own."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from idiolect import data
from idiolect.cli.app import Application, Code, app, load_all
from idiolect.cli.options import (
    ClientColumn,
    DataDir,
    Fill,
    Json,
    LabelColumn,
    OwnDataOptions,
    SplitBy,
    SplitColumn,
    TaskName,
    Vocabulary,
)
from idiolect.cli.terminal import console_of_output, print_line, print_table

__all__ = ["datasets_check", "datasets_command", "datasets_get"]

MOST_CLIENTS, MOST_CLASSES = 20, 8  # shown in the table of a check; --json shows all

datasets_app = Application(invoke_without_command=True, no_args_is_help=False)
app.add_typer(datasets_app, name="datasets", help="List the datasets, get one, or check data of your own.")


@datasets_app.callback()
def datasets_command(
    context: typer.Context, data_dir: DataDir = None, as_json: Json = False, code: Code = None
) -> None:
    """List the datasets and where they are looked for."""
    load_all(code or [])
    if context.invoked_subcommand is not None:
        return
    found = data.describe(data_dir)
    if as_json:
        print(json.dumps([row._asdict() for row in found], indent=2, default=str))
        return
    rows = [["Name", "Samples", "Classes", "Shape", "Licence", "Status", "Where"]]
    print_table(console_of_output(), rows + [[str(cell) for cell in row] for row in found], words=7)


@datasets_app.command("get")
def datasets_get(
    name: Annotated[str, typer.Argument(help="Name of the dataset.")], data_dir: DataDir = None
) -> None:
    """Download a dataset, check its checksums, and lay it out."""
    console = Console(stderr=True)
    with console.status(f"getting {name}"):
        folder = data.get(name, data_dir)
    print(folder)


@datasets_app.command("check")
def datasets_check(
    path: Annotated[Path, typer.Argument(help="A file or folder of your own, or hf:NAME.")],
    client_column: ClientColumn = None,
    label_column: LabelColumn = None,
    split_column: SplitColumn = None,
    split_by: SplitBy = None,
    task: TaskName = None,
    fill: Fill = None,
    vocabulary: Vocabulary = None,
    as_json: Json = False,
) -> None:
    """Say what data of your own hold, what looks like a leak, and what a run would refuse."""
    own = OwnDataOptions(path, client_column, label_column, split_column, split_by, task, fill, vocabulary)
    options = {key: value for key, value in own.keywords().items() if key != "data"}
    dataset = data.read_path(path, **options | ({} if fill and fill != "none" else {"fill": "mean"}))
    found = data.check_data(dataset, fill=fill or "none")
    filled = (
        bool(found.missing) and (fill or "none") == "none"
    )  # by the next command, which ends that refusal
    following = None if len(found.refusals) > filled else _next_command(path, options, bool(found.missing))
    if as_json:
        as_run = dataset if found.missing else replace(dataset, fill=fill or "none")
        print(json.dumps({**asdict(found), "digest": as_run.digest, "next": following}, indent=2))
        return
    _print_check(found, dataset)
    if following is not None:
        print_line(f"Next: {following}")


def _next_command(path: Path, options: dict[str, Any], is_missing: bool) -> str:
    """Returns a command that compares methods on the data."""
    given = ({"fill": "mean"} if is_missing else {}) | {
        key: ",".join(value) if isinstance(value, tuple) else str(value)
        for key, value in options.items()
        if (key, value) != ("fill", "none")
    }
    words = [word for key, value in given.items() for word in (f"--{key.replace('_', '-')}", value)]
    return shlex.join(["idiolect", "run", "--data", str(path), *words])


def _print_check(found: data.DataCheck, dataset: data.Dataset) -> None:
    kind = f"{dataset.train_x.dtype} of shape {list(found.shape)}"
    classes = f" with {dataset.n_classes} {'classes' if dataset.has_classes else 'numbers to predict'}"
    print_line(
        f"{found.name}: {found.rows} rows, {kind}; {len(found.clients)} clients; {found.task}{classes}"
    )
    if found.clients:
        names = list(dataset.class_names[:MOST_CLASSES]) if dataset.has_classes else []
        splits = [] if dataset.splits is None else list(data.SPLITS)
        rows = [["Client", "Rows", *names, *splits]]
        for client in found.clients[:MOST_CLIENTS]:
            counts = [client.classes.get(name, 0) for name in names] + [
                client.splits[name] for name in splits
            ]
            rows.append([client.name, *map(str, [client.rows, *counts])])
        print_table(console_of_output(), rows)
        if len(found.clients) > MOST_CLIENTS:
            sizes = sorted(client.rows for client in found.clients)
            print_line(
                f"and {len(found.clients) - MOST_CLIENTS} more clients; each has {sizes[0]} to {sizes[-1]} rows"
            )
    if found.label_skew is not None:
        print_line(f"Label skew: {found.label_skew:.3f} (0: the clients have the same shares of all classes)")
    if found.missing:
        print_line("Missing values: " + ", ".join(f"{name} {count}" for name, count in found.missing.items()))
    if found.constant:
        print_line(f"Constant columns: {', '.join(found.constant)}")
    for heading, sentences in (
        ("Note", found.remarks),
        ("Suspicion", found.suspicions),
        ("A run would refuse this", found.refusals),
    ):
        for sentence in sentences:
            print_line(f"{heading}: {sentence}")
