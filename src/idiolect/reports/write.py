"""The whole report of a comparison, as files."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from idiolect.errors import UserError
from idiolect.records import Run, write_atomically
from idiolect.reports.appearance import DPI
from idiolect.reports.clients import clients_data, clients_figure
from idiolect.reports.curves import curves_data, curves_figure
from idiolect.reports.partition_figure import partition_figure
from idiolect.reports.summary import summarise
from idiolect.reports.table import csv_table, markdown_table, notes_of

__all__ = ["png", "write_report"]


def write_report(runs: Iterable[Run], folder: str | Path) -> list[Path]:
    """Writes tables, pictures and the numbers behind the pictures; gives the paths back.

    `table.md`, `table.csv`, `curves.png`, `curves.csv`, `clients.png`, `clients.csv`, and `partition.png`
    where a manifest holds `class_counts` (the first such run is drawn).  Each file is replaced in one
    piece.
    """
    runs = list(runs)
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error
    contents = {**_tables(runs), **_pictures(runs)}
    return [write_atomically(folder / name, content) for name, content in contents.items()]


def png(figure: Figure) -> bytes:
    """A figure as PNG, without a date or version in it, so that the same record gives the same file."""
    target = io.BytesIO()
    FigureCanvasAgg(figure).print_png(target, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return target.getvalue()


def _tables(runs: list[Run]) -> dict[str, str]:
    summary = summarise(runs)
    return {"table.md": markdown_table(summary, notes_of(runs)), "table.csv": csv_table(summary)}


def _pictures(runs: list[Run]) -> dict[str, bytes | str]:
    curves, clients = curves_data(runs), clients_data(runs)
    methods = list(dict.fromkeys(curves["method"]))
    pictures = {"curves.png": curves_figure(curves), "clients.png": clients_figure(clients, methods)}
    counted = next((run.manifest for run in runs if run.manifest.get("class_counts")), None)
    if counted:
        title = ", ".join(str(counted[key]) for key in ("dataset", "partition") if key in counted)
        if len({run.manifest["seed"] for run in runs}) > 1:
            title += f" (seed {counted['seed']})"
        pictures["partition.png"] = partition_figure(counted["class_counts"], title)
    contents: dict[str, bytes | str] = {}
    for name, figure in pictures.items():
        figure.set_dpi(DPI)
        contents[name] = png(figure)
    numbers = {"curves.csv": curves, "clients.csv": clients}
    contents.update({name: table.to_csv(index=False, lineterminator="\n") for name, table in numbers.items()})
    return contents
