"""Draws docs/images/robust_merging.png: what rules of merging reach with and without hostile clients.

python scripts/draw_robust_merging.py FOLDER_OF_RUNS ...

The runs are those of ``idiolect compare --beside-clean`` in docs/robustness.md, told apart by scene and method.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from matplotlib.lines import Line2D

from idiolect.records import read_runs
from idiolect.reports import disturbances_data
from idiolect.reports.figures.style import INK, label_panel, make_panels

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "robust_merging.png"
RULES = {
    "": "mean",
    "norm_bound": "norm bound",
    "geometric_median": "geometric median",
    "trimmed_mean": "trimmed mean",
    "median": "median",
    "multi_krum": "Multi-Krum",
    "krum": "Krum",
}
BLUE, RED = "#0072B2", "#D55E00"
CLEAN = {"marker": "o", "markerfacecolor": "white", "markeredgecolor": BLUE, "markeredgewidth": 1.6}
HOSTILE = {"marker": "o", "color": RED}
SPOT = {"linestyle": "none", "markersize": 7}


def rule_of(method: str) -> str:
    return RULES[method.partition(" + ")[2].partition("(")[0]]


def main(folders: list[str]) -> None:
    table = disturbances_data(read_runs(folders))
    table["base"] = table["method"].str.partition(" + ")[0].str.lower()
    table["rule"] = table["method"].map(rule_of)
    groups = list(table.groupby(["scene", "base"], sort=False))
    groups.sort(key=lambda group: ("iid" not in group[0][0], ["fedavg", "ditto", "map"].index(group[0][1])))
    figure, panels = make_panels(len(groups), columns=2, size=(4.0, 2.9))
    for axes, ((scene, base), here) in zip(panels, groups, strict=True):
        draw(axes, here)
        name = {"fedavg": "FedAvg", "ditto": "Ditto", "map": "MAP"}[base]
        label_panel(
            axes, f"{name}, {'IID' if 'iid' in scene else 'Dirichlet(0.3)'}", "Accuracy (%)", grid="x"
        )
    handles = [Line2D([], [], label="no hostile client", **CLEAN, **SPOT)]
    handles.append(
        Line2D([], [], label="a fifth of the clients flip the sign of their updates", **HOSTILE, **SPOT)
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=10)
    figure.savefig(PICTURE)


def draw(axes: object, here: pd.DataFrame) -> None:
    """Draws one line for each rule, from the clean run (open) to the run with hostile clients (full)."""
    order = [rule for rule in reversed(RULES.values()) if rule in set(here["rule"])]
    for _, line in here.iterrows():
        height, clean, hostile = order.index(line["rule"]), 100 * line["clean"], 100 * line["disturbed"]
        if hostile == hostile:
            axes.plot([clean, hostile], [height, height], color="#BBBBBB", linewidth=2, zorder=1)
            axes.plot([hostile], [height], **HOSTILE, **SPOT, zorder=3)
        else:
            axes.text(clean - 3, height, "diverged", color=RED, ha="right", va="center", fontsize=9)
        axes.plot([clean], [height], **CLEAN, **SPOT, zorder=2)
    axes.set_yticks(range(len(order)), order, fontsize=9, color=INK)
    axes.set_xlim(0, 100)


if __name__ == "__main__":
    main(sys.argv[1:])
