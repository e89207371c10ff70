"""`idiolect diff`: in what two runs, or two folders of runs, differ."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from idiolect.cli.app import app
from idiolect.cli.options import Json
from idiolect.cli.terminal import console_of_output, print_line, print_table
from idiolect.reports.run_difference import Difference, PairOfRuns, diff

__all__ = ["diff_command"]

HEADER = ["Method", "Scene", "Predictor", "Data", "Metric", "Runs", "First", "Second", "Difference"]


@app.command("diff", cls=TyperCommand)
def diff_command(
    a: Annotated[Path, typer.Argument(help="A run, or a folder that holds runs.")],
    b: Annotated[Path, typer.Argument(help="The run or folder to compare it with.")],
    everything: Annotated[
        bool, typer.Option("--all", help="Show all predictors, metrics and data, not the headline's alone.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say in what two runs or folders differ; the exit code is 0 for equal numbers, 1 for others, 2 for trouble."""
    found = diff(a, b)
    if as_json:
        print(json.dumps(_as_json(found), indent=2, default=str))
    else:
        lines = _lines(found, everything)
        if len(lines) > 1:
            scenes = len({pair.scene for pair in found.pairs}) > 1
            kept = [line if scenes else [line[0], *line[2:]] for line in lines]
            print_table(console_of_output(), kept, words=5 if scenes else 4)
        for line in repr(found).splitlines():
            print_line(line)
    sys.exit(0 if found.same else 1)


def _lines(found: Difference, everything: bool) -> list[list[str]]:
    """Returns a line for every number, the mean over the runs of a method in a scene that have it on both sides."""
    groups: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    methods = {(pair.label, pair.method) for pair in found.pairs}
    labels = [label for label, _ in methods]
    for pair in found.pairs:
        for one in pair.numbers:
            if (
                one.a is None
                or one.b is None
                or not (everything or _is_main(pair, one.predictor, one.metric))
            ):
                continue
            data = one.split if one.population == "all" else f"{one.split}, {one.population}"
            name = pair.label if labels.count(pair.label) == 1 else pair.method
            key: tuple[str, ...] = (name, pair.scene, one.predictor, data, one.metric)
            groups.setdefault(key, []).append((one.a, one.b))
    lines = [HEADER]
    for words, values in groups.items():
        first, second = (sum(side) / len(values) for side in zip(*values, strict=True))
        lines.append([*words, str(len(values)), f"{first:.6g}", f"{second:.6g}", f"{second - first:+.3g}"])
    return lines


def _is_main(pair: PairOfRuns, predictor: str, metric: str) -> bool:
    name, judged = pair.headline
    return predictor in (name, "global") and metric in (judged, "loss")


def _as_json(found: Difference) -> dict[str, Any]:
    pairs = [
        {
            **asdict(pair),
            "same": pair.same,
            "numbers": [{**asdict(one), "difference": one.difference} for one in pair.numbers],
        }
        for pair in found.pairs
    ]
    return {**asdict(found), "pairs": pairs, "same": found.same}
