"""One line per method: the numbers a comparison is read for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from idiolect.records import Run
from idiolect.reports.accuracies import final_clients, final_global, worst_tenth
from idiolect.reports.grouping import group_runs

__all__ = ["AVERAGED", "summarise"]

AVERAGED = (
    "global_accuracy",
    "personal_accuracy",
    "sd_clients",
    "worst_tenth",
    "bytes_down",
    "bytes_up",
    "seconds",
)


def summarise(runs: Iterable[Run]) -> pd.DataFrame:
    """Summarises runs, one row per method: means over seeds, and SDs over seeds where there are several.

    Columns: `method` (its label), `seeds` (how many), `predictor` (the headline), `clients`, then, each as
    the mean over seeds: `global_accuracy` (server's test set), `personal_accuracy` (mean over all clients),
    `sd_clients` (SD over clients, n - 1), `worst_tenth` (mean of the worst ceil(10 %) of the clients),
    `bytes_down` and `bytes_up` per round, `seconds` of the whole run; and `global_accuracy_sd_seeds`,
    `personal_accuracy_sd_seeds`, `worst_tenth_sd_seeds` (n - 1, NaN for one seed).  Accuracies lie in [0,
    1]; what was not measured is NaN.
    """
    return pd.DataFrame([_line(label, group) for label, group in group_runs(runs).items()])


def _line(label: str, group: list[Run]) -> dict[str, Any]:
    seeds = pd.DataFrame([_numbers(run) for run in group])
    line: dict[str, Any] = {
        "method": label,
        "seeds": len(group),
        "predictor": group[0].manifest.get("headline", "global"),
        "clients": int(seeds["clients"].max()),
    }
    line.update({name: seeds[name].mean(skipna=False) for name in AVERAGED})
    for name in ("global_accuracy", "personal_accuracy", "worst_tenth"):
        line[f"{name}_sd_seeds"] = seeds[name].std(ddof=1, skipna=False)
    return line


def _numbers(run: Run) -> dict[str, float]:
    clients = final_clients(run)
    return {
        "clients": len(clients),
        "global_accuracy": final_global(run),
        "personal_accuracy": float(clients.mean()),
        "sd_clients": float(clients.std(ddof=1)),
        "worst_tenth": worst_tenth(clients),
        "bytes_down": float(run.rounds["bytes_down"].mean()),
        "bytes_up": float(run.rounds["bytes_up"].mean()),
        "seconds": float(run.manifest.get("seconds", run.rounds["seconds"].sum())),
    }
