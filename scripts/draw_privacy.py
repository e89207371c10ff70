"""Draws docs/images/privacy.png, accuracy against epsilon, and prints the rows of the table in docs/privacy.md.

python scripts/draw_privacy.py FOLDER_OF_RUNS ...

The runs are those of ``idiolect compare`` in docs/privacy.md, told apart by method; several seeds are averaged.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pandas as pd

from idiolect.records import Run, read_runs
from idiolect.reports import summarise
from idiolect.reports.figures.style import label_panel, make_panels

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "privacy.png"
COLOURS = {"Ditto": "#D55E00", "MAP": "#CC79A7", "FedPer": "#009E73", "FedAvg": "#0072B2"}
CLEAN, BOUND = "clean", "bound alone"


def setting_of(run: Run) -> str | float:
    """Returns epsilon, or what was done where nothing is promised."""
    promises = run.manifest.get("privacy", {}).get("promises", [])
    if not promises:
        return CLEAN
    epsilon = promises[0]["epsilon"]
    return BOUND if epsilon is None else round(epsilon, 1)


def accuracies(runs: list[Run]) -> pd.DataFrame:
    """Returns mean and deviation over seeds, by method and by how private it was."""
    found = []
    for run in runs:
        value = 100 * summarise([run])["personal_accuracy"].iloc[0]
        name = run.manifest["label"].partition(" + ")[0]
        known = {known.lower(): known for known in (*COLOURS, "Local")}
        found.append((known[name.lower()], setting_of(run), run.manifest["seed"], value))
    table = pd.DataFrame(found, columns=["method", "epsilon", "seed", "accuracy"])
    return table.groupby(["method", "epsilon"], sort=False)["accuracy"].agg(["mean", "std", "count"])


def in_order(settings: set[str | float]) -> list[str | float]:
    """Returns what was done from no privacy to most."""
    numbers = sorted((one for one in settings if not isinstance(one, str)), reverse=True)
    return [one for one in (CLEAN, BOUND) if one in settings] + list(numbers)


def print_rows(table: pd.DataFrame, order: list[str | float]) -> None:
    for method in (*reversed(COLOURS), "Local"):
        cells = []
        for one in order:
            if (method, one) not in table.index:
                cells.append("")
                continue
            mean, deviation, count = table.loc[(method, one)]
            spread = f" ± {deviation:.1f}" if count > 1 and not math.isnan(deviation) else ""
            cells.append(f"{mean:.1f}{spread}")
        print(f"| {method} | {' | '.join(cells)} |")


def main(folders: list[str]) -> None:
    table = accuracies(read_runs(folders))
    order = in_order(set(table.index.get_level_values("epsilon")))
    print("| Method |", " | ".join(map(str, order)), "|")
    print_rows(table, order)
    figure, (axes,) = make_panels(1, columns=1, size=(6.0, 3.4))
    for method, colour in COLOURS.items():
        places = [place for place, one in enumerate(order) if (method, one) in table.index]
        values = [table.loc[(method, order[place])] for place in places]
        means, spreads = [v["mean"] for v in values], [v["std"] for v in values]
        axes.errorbar(places, means, yerr=spreads, color=colour, marker="o", capsize=3, label=method)
    if ("Local", CLEAN) in table.index:
        alone = table.loc[("Local", CLEAN), "mean"]
        axes.axhline(alone, color="#777777", linestyle="--", label="Local: nothing leaves")
    names = [one if isinstance(one, str) else f"ε = {one:g}" for one in order]
    axes.set_xticks(range(len(order)), names)
    axes.legend(frameon=False, fontsize=9, loc="lower left")
    label_panel(axes, "What one client's privacy costs", "", "Mean accuracy of the clients (%)")
    figure.savefig(PICTURE)


if __name__ == "__main__":
    main(sys.argv[1:])
