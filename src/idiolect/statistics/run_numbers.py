"""The numbers of one run that tables are made of, and those of the clients that joined at its end."""

from __future__ import annotations

import math
from typing import NamedTuple

import pandas as pd

from idiolect.records import NO_CLIENT, Run
from idiolect.statistics.client_tables import Groups
from idiolect.statistics.dispersion import worst_tenth
from idiolect.statistics.measurements import (
    client_samples,
    client_scores,
    headline,
    higher_is_better,
    measured,
    primary_metric,
    read_rounds,
    server_curve,
)
from idiolect.statistics.reading import LAST, Reading
from idiolect.statistics.replicates import over_replicates

__all__ = ["RunNumbers", "global_score", "never_trained", "newcomer_table", "run_numbers"]

ARRIVALS = {"arrival": "before", "joined": "after"}  # what is measured of newcomers, and at which moment


class RunNumbers(NamedTuple):
    """The final numbers of one run by one metric; what was not measured is NaN.

    Args:
        clients: clients with a value.
        shared: the global model on the server's test set.
        personal: the headline's mean over all clients, each with the same weight.
        weighted: the same with clients weighted by their test rows.
        sd_clients: SD over clients, n - 1.
        worst_tenth: mean of the worst tenth of the clients that trained at least once.
        never_trained: clients that never trained; NaN where nobody counted.
        left_out: clients that the worst tenth leaves out; none in older records, which do not say who never trained.
    """

    clients: int
    shared: float
    personal: float
    weighted: float
    sd_clients: float
    worst_tenth: float
    never_trained: float
    left_out: int


def run_numbers(run: Run, metric: str | None = None, *, reading: Reading = LAST) -> RunNumbers:
    """Returns the final numbers of a run; one with secure aggregation may know the mean of its clients alone.

    Raises:
        UserError: the reading is `validated` and the run has no scores on validation data.
    """
    name = metric or primary_metric(run)
    values = client_scores(run, metric=name, reading=reading)
    idle, told = idle_clients(run), values.drop(NO_CLIENT, errors="ignore")
    return RunNumbers(
        clients=len(told),
        shared=global_score(run, name, reading=reading),
        personal=float(values.mean()),
        weighted=weighted_mean(values, client_samples(run, metric=name, reading=reading)),
        sd_clients=float(told.std(ddof=1)),
        worst_tenth=worst_tenth(told.drop(idle, errors="ignore"), higher_is_better(run, name)),
        never_trained=never_trained(run),
        left_out=len(idle),
    )


def global_score(run: Run, metric: str | None = None, *, reading: Reading = LAST) -> float:
    """Returns the global model's final value on the server's test set, or NaN.

    A headline that is measured at the end of the run has no validated round; the global model is then read last.
    """
    points = server_curve(run, metric)
    if points.empty:
        return math.nan
    own = measured(run)
    at_end = reading.rule == "validated" and bool((own["moment"] == "end").any())
    rounds = read_rounds(run, points.index.to_series(), LAST if at_end else reading)
    return float(points.reindex(rounds).mean())


def weighted_mean(values: pd.Series, samples: pd.Series) -> float:
    """Returns the mean of clients weighted by their samples; NaN where a client has no samples on record."""
    weights = samples.reindex(values.index).fillna(0)
    if not len(values) or not (weights > 0).all():
        return math.nan
    return float((values * weights).sum() / weights.sum())


def idle_clients(run: Run) -> list[int]:
    """Returns the clients that never trained, where the run recorded what each client spent; otherwise none."""
    costs = run.costs
    own = costs[(costs["population"] == "all") & (costs["rounds"] == 0)]
    return [int(client) for client in own["client"]]


def never_trained(run: Run) -> float:
    """Returns how many clients never trained; NaN where nobody counted."""
    if len(run.costs):
        return float(len(idle_clients(run)))
    return float(run.manifest.get("never_selected", math.nan))


def newcomer_table(groups: Groups, metric: str | None = None) -> pd.DataFrame:
    """Returns what clients get that join after training: one row per method, none for methods without newcomers.

    Columns: `method`, `predictor` (the headline), `seeds`, `newcomers`; then for `arrival` (the first prediction with
    what the server sends) and `joined` (after the method's own way to join), each as the mean over seeds: the mean over
    newcomers, `_sd_clients` (SD over newcomers within a run, n - 1), `_worst_tenth`, and `_sd_seeds` (n - 1).
    A predictor that only exists after joining has no value on arrival.
    """
    lines = []
    for label, runs in groups.items():
        name = metric or primary_metric(runs[0])
        found = {word: [_newcomers(run, name, moment) for run in runs] for word, moment in ARRIVALS.items()}
        if not any(len(values) for each in found.values() for values in each):
            continue
        line = {"method": label, "predictor": headline(runs[0]), "seeds": len(runs)}
        line["newcomers"] = max(len(values) for values in found["joined"])
        better = higher_is_better(runs[0], name)
        for word, each in found.items():
            mean = over_replicates(runs, [float(values.mean()) for values in each])
            line |= {word: mean.mean, f"{word}_sd_seeds": mean.sd}
            spread = [float(values.std(ddof=1)) for values in each]
            line[f"{word}_sd_clients"] = over_replicates(runs, spread).mean
            worst = [worst_tenth(values, better) for values in each]
            line[f"{word}_worst_tenth"] = over_replicates(runs, worst).mean
        lines.append(line)
    return pd.DataFrame(lines)


def _newcomers(run: Run, metric: str, moment: str) -> pd.Series:
    found = measured(run, metric=metric, population="new", moment=moment)
    return found[found["round"] == found["round"].max()].set_index("client")["value"].astype(float)
