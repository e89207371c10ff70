"""`idiolect settings`, `models`, `partitions`, `disturbances`, `metrics`: all that has a name, listed or explained."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from idiolect import models, partition
from idiolect.cli.app import app
from idiolect.cli.options import RUN_OPTIONS, Json
from idiolect.cli.terminal import console_of_output, print_line, print_table
from idiolect.core import OBJECTIVES
from idiolect.errors import unknown_name
from idiolect.evaluation.metrics import Metric, metrics_of
from idiolect.experiments import Execution, Experiment
from idiolect.experiments.spec import unknown_setting
from idiolect.federation import DISTURBANCES, describe_disturbances
from idiolect.methods.cards.docstrings import arguments

__all__ = [
    "disturbances_command",
    "metrics_command",
    "models_command",
    "partitions_command",
    "settings_command",
]

Entry = dict[str, Any]


@app.command("settings")
def settings_command(
    name: Annotated[str | None, typer.Argument(help="A setting or option to explain.")] = None,
    as_json: Json = False,
) -> None:
    """List every setting of an experiment (--set) and every option of how a run is made, with their defaults."""
    entries = [*_fields_of(Experiment, "setting"), *_fields_of(Execution, "option")]
    if name is not None:
        wanted = name.lstrip("-").replace("-", "_")
        entries = [entry for entry in entries if entry["name"] == wanted]
        if not entries:
            raise unknown_setting(wanted, also=list(RUN_OPTIONS))
    if as_json:
        print(json.dumps(entries, indent=2))
    elif name is not None:
        _print_page(entries[0])
    else:
        for kind, title in (("setting", "Settings: what changes numbers"), ("option", "How a run is made")):
            _print_list(
                title, ("written", "type", "default", "meaning"), [e for e in entries if e["kind"] == kind]
            )


@app.command("models")
def models_command(
    name: Annotated[str | None, typer.Argument(help="A model to explain.")] = None, as_json: Json = False
) -> None:
    """List the networks, or show the options of one."""
    listed = {d.name: d for d in models.describe()}
    entries: list[Entry] = []
    for each in models.names():
        known = listed.get(each)
        entries.append(
            {
                "name": each,
                "input": "x".join(map(str, known.image_shape)) if known else "",
                "parameters": known.parameters if known else None,
                "options": models.options(each),
                "idea": known.line if known else "registered",
            }
        )
    _show(
        "model", entries, ("name", "input", "parameters", "idea"), name, as_json, "Parameters for 10 classes."
    )


@app.command("partitions")
def partitions_command(
    name: Annotated[str | None, typer.Argument(help="A partition to explain.")] = None, as_json: Json = False
) -> None:
    """List the ways to share samples out among clients, or show the options of one."""
    entries = [one._asdict() for one in partition.describe()]
    if name is not None:
        name, _ = partition.resolved(name)
    _show("partition", entries, ("name", "idea", "options"), name, as_json)


@app.command("disturbances")
def disturbances_command(
    name: Annotated[str | None, typer.Argument(help="A disturbance to explain.")] = None,
    as_json: Json = False,
) -> None:
    """List what a run can be disturbed by (--under), or show the options of one."""
    entries: list[Entry] = [
        one._asdict() | {option: said.replace("``", "") for option, (said, _) in arguments(function).items()}
        for one, function in zip(describe_disturbances(), DISTURBANCES.values(), strict=True)
    ]
    _show("disturbance", entries, ("name", "idea", "options"), name, as_json)


@app.command("metrics")
def metrics_command(
    name: Annotated[str | None, typer.Argument(help="A metric to explain.")] = None, as_json: Json = False
) -> None:
    """List what is measured of every predictor, by task."""
    found: dict[int, Entry] = {}
    for task in OBJECTIVES:
        for each, metric in metrics_of(task).items():
            found.setdefault(id(metric), _described(each, metric))["tasks"].append(task)
    columns = ("name", "tasks", "better", "range", "unit", "meaning")
    _show("metric", list(found.values()), columns, name, as_json)


def _described(name: str, metric: Metric) -> Entry:
    low, high = (
        (-math.inf if metric.low is None else metric.low),
        (math.inf if metric.high is None else metric.high),
    )
    return {
        "name": name,
        "tasks": [],
        "better": "higher" if metric.higher_is_better else "lower",
        "range": f"{low:g} to {high:g}",
        "unit": metric.unit,
        "meaning": (inspect.getdoc(metric.function) or "").partition("\n")[0].removeprefix("Returns "),
    }


def _fields_of(group: type[Any], kind: str) -> list[Entry]:
    """Describes the fields of the experiment or the execution, by what its docstring says of them."""
    said, entries = arguments(group), []
    for field in dataclasses.fields(group):
        if field.name in ("watcher", "notes"):
            continue
        default = None if field.default is dataclasses.MISSING else field.default
        flag = f"--{field.name.replace('_', '-')}"
        entries.append(
            {
                "name": field.name,
                "kind": kind,
                "written": flag if field.name in RUN_OPTIONS else field.name,
                "type": str(field.type),
                "default": list(default) if isinstance(default, tuple) else default,
                "meaning": said[field.name][0].replace("``", ""),
            }
        )
    return entries


def _show(
    kind: str, entries: list[Entry], columns: Sequence[str], name: str | None, as_json: bool, note: str = ""
) -> None:
    """Prints all entries, or the one of a name."""
    if name is not None:
        known = [entry["name"] for entry in entries]
        entries = [entry for entry in entries if entry["name"] == name]
        if not entries:
            raise unknown_name(kind, name, known)
    if as_json:
        print(json.dumps(entries, indent=2))
    elif name is not None:
        for entry in entries:
            _print_page(entry)
    else:
        _print_list("", columns, entries)
        if note:
            print_line(note)


def _print_list(title: str, columns: Sequence[str], entries: Sequence[Entry]) -> None:
    rows = [[column.capitalize() for column in columns]]
    rows += [[_first_sentence(_text(entry[column])) for column in columns] for entry in entries]
    print_table(console_of_output(), rows, title=title, words=len(columns))


def _print_page(entry: Entry) -> None:
    for key, value in entry.items():
        if value not in ("", None, {}):
            print_line(f"{key.capitalize()}: {_text(value)}")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={one!r}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return f"{value:,}".replace(",", " ") if type(value) is int else "-" if value is None else str(value)


def _first_sentence(text: str) -> str:
    """Shortens what a list says of an entry to its first clause."""
    return text.partition("; ")[0].partition(". ")[0].rstrip(".")
