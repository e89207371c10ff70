"""Samples of each class at each client, as bubbles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from idiolect.reports.figures.paper_style import sizes
from idiolect.reports.figures.style import COLOURS, INK, legend_beside, make_figure, set_title, tidy

__all__ = ["partition_figure"]

MOST_CLIENTS = 60
POINTS_PER_INCH = 72


def partition_figure(class_counts: Sequence[Sequence[int]], title: str = "") -> Figure:
    """Draws the partition; the area of a bubble is proportional to the number of samples.

    Args:
        class_counts: one row per client, one column per class.
        title: what was partitioned, such as the dataset and the partition.
    """
    counts = np.asarray(class_counts, dtype=float)
    shown = counts[:MOST_CLIENTS]
    clients, classes = shown.shape
    size = (float(np.clip(2.0 + 0.2 * clients, 6.0, 13.0)), float(np.clip(1.6 + 0.26 * classes, 3.2, 11.0)))
    if sizes().width:
        size = (sizes().width, float(np.clip(0.8 + 0.13 * classes, 1.4, 6.0)))
    figure, axes = make_figure(size, size[1])
    client, label = np.nonzero(shown)
    edge = 0.9 if sizes().width else 1.6
    cell = 1.2 * POINTS_PER_INCH * min((size[0] - edge) / clients, (size[1] - 0.55 * edge) / classes)
    scale = cell**2 / max(1.0, shown.max())
    dots = axes.scatter(
        client, label, s=scale * shown[client, label], color=COLOURS[0], alpha=0.75, linewidths=0
    )
    part = f", the first {clients} of {len(counts)} clients" if clients < len(counts) else ""
    what = f"Samples per client and class: {title}" if title else "Samples per client and class"
    set_title(axes, what + part)
    axes.set_xlabel("Client", fontsize=sizes().label, color=INK)
    axes.set_ylabel("Class", fontsize=sizes().label, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=20, integer=True))
    axes.set_xlim(-0.8, clients - 0.2)
    axes.set_ylim(-0.8, classes - 0.2)
    tidy(axes, grid="none")
    handles, labels = dots.legend_elements("sizes", num=4, func=lambda area: area / scale, color=COLOURS[0])
    for handle, text in zip(handles, labels, strict=True):
        handle.set_label(text)
    legend_beside(figure, handles, "samples")
    return figure
