"""The picture of a figure whose lines run over rounds or mixing coefficients; other kinds are told in numbers."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from idiolect.experiments.papers import Figure
from idiolect.records import write_atomically
from idiolect.reports.lines import lines_figure
from idiolect.reports.write import png

__all__ = ["write_picture"]

AXES = {"curves": "round", "spread": "round", "degradation": "round", "profile": "alpha"}
LABELS = {"round": "Round", "alpha": "Mixing coefficient"}


def write_picture(points: pd.DataFrame, figure: Figure, folder: Path, quick: bool) -> None:
    """Writes ``<id>.png``: one panel per scenario, means over seeds, SD over clients as a band."""
    if figure.kind not in AXES:
        return
    x = AXES[figure.kind]
    kept = [name for name in ("value", "sd") if name in points]
    means = points.groupby(["panel", "line", x], sort=False)[kept].mean().reset_index()
    title = f"{figure.id} (quick)" if quick else figure.id
    drawn = lines_figure(means.rename(columns={x: "x"}), LABELS[x], title)
    write_atomically(folder / f"{figure.id}.png", png(drawn))
