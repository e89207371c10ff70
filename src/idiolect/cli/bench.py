"""`idiolect bench`: times the engines beside a plain loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from typer.core import TyperCommand

from idiolect.bench import SIZES, BenchCell, BenchGrid, Report, bench, notes_of, rows_of_table, workloads
from idiolect.bench.interleaved_measurement import Peer
from idiolect.cli.app import app
from idiolect.cli.options import Device, Json, with_option_groups
from idiolect.cli.terminal import console_of_output, print_table
from idiolect.errors import UserError

__all__ = ["bench_command", "bench_command_with"]


@dataclass(frozen=True)
class BenchOptions:
    """What is timed; commas separate values of which every combination is timed."""

    models_: Annotated[
        str, typer.Option("--models", help=f"Workloads separated by commas: {', '.join(workloads())}.")
    ] = ",".join(BenchGrid.workloads)
    engines: Annotated[
        str, typer.Option(help="Engines separated by commas; auto is the one that a run would choose.")
    ] = ",".join(BenchGrid.engines)
    clients: Annotated[str, typer.Option(help="Cohort sizes separated by commas.")] = "20"
    precision: Annotated[str, typer.Option(help="Precisions separated by commas.")] = "float32"
    method: Annotated[
        str, typer.Option(help="Methods separated by commas: fedavg, map, persfl, superfed-mm.")
    ] = "fedavg"
    device: Device = "auto"
    population: Annotated[int, typer.Option(help="Number of clients; at least the size of the cohort.")] = (
        BenchGrid.population
    )
    samples: Annotated[int, typer.Option(help="Training images of a client.")] = BenchGrid.samples
    batch_size: Annotated[int, typer.Option(help="Images in a batch.")] = BenchGrid.batch_size
    sizes: Annotated[
        str, typer.Option(help=f"Sizes of clients: {' or '.join(SIZES)}, or both separated by a comma.")
    ] = ",".join(BenchGrid.sizes)
    seed: Annotated[int, typer.Option(help="Seed of the images, cohorts, batches and sizes of clients.")] = (
        BenchGrid.seed
    )
    repeats: Annotated[int, typer.Option(help="Timed rounds of every row.")] = BenchGrid.repeats
    warmup: Annotated[int, typer.Option(help="Untimed rounds before the timed ones.")] = BenchGrid.warmup

    def grid(self) -> BenchGrid:
        """Returns the grid that the options describe."""
        return BenchGrid(
            workloads=_listed(self.models_),
            engines=_listed(self.engines),
            clients=tuple(_whole("clients", text) for text in _listed(self.clients)),
            precisions=_listed(self.precision),
            methods=_listed(self.method),
            device=self.device,
            population=self.population,
            samples=self.samples,
            batch_size=self.batch_size,
            sizes=_listed(self.sizes),
            seed=self.seed,
            repeats=self.repeats,
            warmup=self.warmup,
        )


def bench_command_with(peers_of: Callable[[BenchGrid, BenchCell], Sequence[Peer]]) -> Callable[..., None]:
    """Returns the command, which times these peers as well."""

    @with_option_groups
    def command(*, options: BenchOptions, as_json: Json = False) -> None:
        """Time the engines beside a plain loop of torch, turn by turn (about four minutes on two cores)."""
        grid = options.grid()
        with Console(stderr=True).status("starting") as status:
            report = bench(grid, status.update, peers_of)
        _print(report, as_json)
        if all(line["refused"] for line in report.lines if line["runner"] in grid.engines):
            raise typer.Exit(1)

    return command


bench_command = app.command("bench", cls=TyperCommand)(bench_command_with(lambda grid, cell: ()))


def _print(report: Report, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**report.as_dict(), "notes": notes_of(report)}, indent=2))
        return
    console = console_of_output()
    print_table(console, rows_of_table(report), words=3)
    for note in notes_of(report):
        console.print(f"- {note}", highlight=False, markup=False)


def _listed(text: str) -> tuple[str, ...]:
    """Returns the words between commas, each once."""
    return tuple(dict.fromkeys(piece.strip() for piece in text.split(",") if piece.strip()))


def _whole(option: str, text: str) -> int:
    if not text.isdecimal():
        raise UserError(f"--{option} must be whole numbers from 1 on, separated by commas, got {text!r}")
    return int(text)
