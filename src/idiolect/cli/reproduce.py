"""`idiolect reproduce`: a paper's table or figure, printed beside the paper's numbers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from idiolect.cli.app import app
from idiolect.cli.options import Json, Precision, PresetIfAny, with_option_groups
from idiolect.cli.settings import methods_in, names_in
from idiolect.cli.terminal import console_of_output, print_line, print_table, watched
from idiolect.errors import UserError
from idiolect.experiments import Execution
from idiolect.reproduction.campaigns import run_named_campaign
from idiolect.reproduction.compared_number import ComparedNumber
from idiolect.reproduction.listing import ListedReproduction, list_campaigns, list_reproductions
from idiolect.reproduction.reproduce import Reproduction, reproduce
from idiolect.reproduction.reproduction_result import ABSENT, number_text

__all__ = ["reproduce_command"]


@dataclass(frozen=True)
class PaperOptions:
    """Which part of a table or figure is made, and in which of the ways that the paper leaves open."""

    column: Annotated[
        str | None,
        typer.Option(help="Columns of the table, or scenarios of the figure, separated by commas."),
    ] = None
    methods_: Annotated[str | None, typer.Option("--methods", help="Methods separated by commas.")] = None
    seeds: Annotated[
        int | None,
        typer.Option(
            help="How many seeds; unless given, as many runs as the paper averages: 5 of PersFL, 1 of the others.",
            min=1,
        ),
    ] = None
    preset: PresetIfAny = None
    from_results: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RESULTS",
            help="Train nothing: print what the records in this folder of results give, results/ in the repository.",
        ),
    ] = None
    best_of_grid: Annotated[
        bool,
        typer.Option(
            "--best-of-grid",
            help="Run all settings of MAP's authors and take each scene's best; MAP's tables and map-fig9.",
        ),
    ] = False
    delta: Annotated[
        str,
        typer.Option(
            help="For fedphp-fig6: compare a download at the client's next selection, or the next round (equation 4)."
        ),
    ] = "selection"
    quick: Annotated[
        bool, typer.Option("--quick", help="Embedded data and few rounds; never compared with the paper.")
    ] = False
    formats: Annotated[
        str,
        typer.Option("--format", help="Formats of a figure's picture, separated by commas: png, svg, pdf."),
    ] = "png"
    precision: Precision = None


@app.command("reproduce")
@with_option_groups
def reproduce_command(
    *,
    id: Annotated[
        str | None, typer.Argument(help="A table or figure, such as map-table2 or fedphp-fig4.")
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="List all tables and figures: what each shows and needs.")
    ] = False,
    campaign: Annotated[
        str | None,
        typer.Option(
            help="Make the runs of several tables, searches and comparisons together; --list names the campaigns."
        ),
    ] = None,
    asked: PaperOptions,
    execution: Execution,
    as_json: Json = False,
) -> None:
    """Make a paper's table or figure: run what is missing, and show our numbers beside the paper's."""
    if listed:
        _print_list(list_reproductions(execution.data_dir), as_json)
        return
    if campaign is not None:
        _campaign(campaign, id, asked, execution, as_json)
        return
    if id is None:
        raise UserError("name a table or figure, such as map-table2; idiolect reproduce --list shows all")
    done = reproduce(
        id,
        columns=names_in(asked.column),
        methods=methods_in(asked.methods_),
        seeds=asked.seeds,
        preset=asked.preset,
        best_of_grid=asked.best_of_grid,
        from_results=asked.from_results,
        delta=asked.delta,
        quick=asked.quick,
        formats=names_in(asked.formats),
        execution=execution if asked.from_results else watched(execution),
        precision=asked.precision,
    )
    if as_json:
        print(json.dumps(_as_json(done), indent=2))
    else:
        _print_reproduction(console_of_output(), done)
    if done.failures or (
        done.numbers and all(one.value is None and not one.diverged for one in done.numbers)
    ):
        sys.exit(2)


def _campaign(name: str, id: str | None, asked: PaperOptions, execution: Execution, as_json: bool) -> None:
    """Makes a campaign, or reads it from results, and prints all that it shows."""
    if id is not None or replace(asked, from_results=None) != PaperOptions():
        raise UserError("a campaign says itself what is run and how; leave out everything but --from")
    execution = execution if asked.from_results else watched(execution)
    shown = run_named_campaign(name, execution, asked.from_results)
    if as_json:
        print(json.dumps([_as_json(done) for done in shown], indent=2))
    for done in [] if as_json else shown:
        _print_reproduction(console_of_output(), done)
    if any(done.failures for done in shown):
        sys.exit(2)


def _print_list(found: Sequence[ListedReproduction], as_json: bool) -> None:
    """Prints what every table and figure shows and needs."""
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=2))
        return
    rows = [["Id", "Shows", "Data", "Networks", "Runs", "Client rounds", "Here"]]
    for one in found:
        here = "missing" if one.missing else "present" if one.datasets else ABSENT
        names = ["\n".join(words) or ABSENT for words in (one.datasets, one.models)]
        rows.append([one.id, one.what, *names, f"{one.runs:,}", f"{one.client_rounds:,}", here])
    print_table(console_of_output(), rows, words=4)
    print_line(
        "Runs are those of all seeds that the paper averages. Client rounds count the trainings of one client in one "
        "round, for a study its epochs. --quick makes each on embedded data in a small fraction of them."
    )
    rows = [["Campaign", "Shows", "Runs", "Client rounds"]]
    for campaign in list_campaigns():
        rows.append([campaign.name, campaign.about, f"{campaign.runs:,}", f"{campaign.client_rounds:,}"])
    print_table(console_of_output(), rows, words=2)
    print_line("idiolect reproduce --campaign NAME makes the runs of a campaign, --jobs of them at a time.")


def _print_reproduction(console: Console, done: Reproduction) -> None:
    """Prints our numbers beside the paper's; a quick reproduction shows no number of the paper."""
    if done.numbers:
        header = ["Row", "Column", "Measured", "95 %", "Seeds"]
        rows = [header if done.quick else [*header, "Paper", "Difference", "Within"]]
        rows += [_cells(one, done.quick) for one in done.numbers]
        print_table(console, rows, title=f"{done.id} (quick)" if done.quick else done.id, words=2)
    for note in (done.caption, *done.notes):
        console.print(f"- {note}", highlight=False, markup=False, soft_wrap=True)
    if done.folder:
        print_line(f"Tables: {done.folder}")


def _as_json(done: Reproduction) -> dict[str, Any]:
    return {
        "id": done.id,
        "caption": done.caption,
        "quick": done.quick,
        "folder": str(done.folder) if done.folder else None,
        "notes": list(done.notes),
        "cells": [{**vars(one), "difference": one.difference, "within": one.within} for one in done.numbers],
    }


def _cells(one: ComparedNumber, quick: bool) -> list[str]:
    low, high = one.interval or (None, None)
    interval = ABSENT if low is None else f"{number_text(low, one.unit)} .. {number_text(high, one.unit)}"
    measured = number_text(one.value, one.unit)
    if one.spread is not None:
        measured += f" ± {number_text(one.spread, one.unit)}"
    if one.rule:
        measured += f" {one.rule}"
    if one.value is None:
        measured = one.text_without_value
    cells = [one.row, one.column, measured, interval, str(one.seeds or ABSENT)]
    if quick:
        return cells
    paper = number_text(one.paper, one.unit)
    if one.paper_spread is not None:
        paper += f" ± {number_text(one.paper_spread, one.unit)}"
    within = {None: ABSENT, True: "yes", False: "no"}[one.within]
    sign = "+" if (one.difference or 0.0) >= 0 else ""
    difference = ABSENT if one.difference is None else f"{sign}{number_text(one.difference, one.unit)}"
    return [*cells, paper, difference, within]
