"""Local degradation: what a client loses between two of its participations.

delta_t^k = Acc^k(model downloaded at t') - Acc^k(model personalised at t)
Li et al., ECML-PKDD 2021 (FedPHP), eq. (4)

The equation has t' = t + 1, the next round, in which few of the clients selected at t download anything.  By default,
t' is the next selection of client k, which is what the client sees.
"""

from __future__ import annotations

import pandas as pd

from idiolect.errors import UserError, refuse_unknown_choice
from idiolect.records import Run
from idiolect.statistics.measurements import measured

__all__ = ["DELTAS", "before_and_after", "degradation"]

DELTAS = ("selection", "round")  # what t' is the next of


def before_and_after(run: Run, metric: str | None = None) -> pd.DataFrame:
    """Returns one row per selection: `client`, `round`, and the values of two models before and after local training.

    `shared_before` is the main model as downloaded (with private layers, composed with them), `shared_after` the
    same after local training; `deployed_before` and `deployed_after` are the method's headline
    predictor.  A value is NaN where a predictor exists only at the end of the run.

    Raises:
        UserError: a round was not observed, so that a selection might be missing.
    """
    rows = run.rows[run.rows["population"] == "selected"]
    unseen = sorted(set(run.rounds["round"]) - set(rows["round"]))
    if unseen:
        raise UserError(
            f"{run.manifest['name']} has no measurement of the selected clients in round {unseen[0]}; "
            "run it with observe=always"
        )
    return _selections(run, metric)


def _selections(run: Run, metric: str | None) -> pd.DataFrame:
    """Returns the table of ``before_and_after`` for the rounds that were observed."""
    rows = run.rows[run.rows["population"] == "selected"]
    main = _main(run)
    table = rows[["client", "round"]].drop_duplicates().sort_values(["client", "round"])
    for name, predictor, moment in (
        ("shared_before", main, "before"),
        ("shared_after", "after-local", "after"),
        ("deployed_before", None, "before"),
        ("deployed_after", None, "after"),
    ):
        found = measured(run, predictor, metric=metric, population="selected", moment=moment)
        values = found.set_index(["client", "round"])["value"].rename(name)
        table = table.join(values, on=["client", "round"])
    return table.reset_index(drop=True)


def _main(run: Run) -> str:
    rows = run.rows[run.rows["population"] == "selected"]
    return "global" if (rows["predictor"] == "global").any() else "composed"


def degradation(run: Run, metric: str | None = None, at: str = "selection") -> pd.DataFrame:
    """Returns one row per selection for which both models were measured.

    Columns: `client`, `round` (t'), `previous` (t), `delta_shared` of the main model and `delta_deployed` of the
    headline.  The mean over the selected by `round` is FedPHP's figure 6; a model that is only ever changed by the
    client's own participation has a `delta_deployed` of 0.

    Args:
        at: ``selection``: t' is the client's next selection, and every round has to be observed; ``round``: t' = t + 1,
            as the equation is written, and rounds count in which all clients were evaluated and the selected observed.
    """
    refuse_unknown_choice("at", at, DELTAS)
    if at == "round":
        return _at_next_round(run, metric)
    table = before_and_after(run, metric)
    earlier = table.groupby("client").shift()
    found = pd.DataFrame(
        {
            "client": table["client"],
            "round": table["round"],
            "previous": earlier["round"],
            "delta_shared": table["shared_before"] - earlier["shared_after"],
            "delta_deployed": table["deployed_before"] - earlier["deployed_after"],
        }
    )
    return found[found["previous"].notna()].astype({"previous": int}).reset_index(drop=True)


def _at_next_round(run: Run, metric: str | None) -> pd.DataFrame:
    """Returns the deltas with t' = t + 1, in rounds that evaluated all clients and observed the selected ones."""
    table = _selections(run, metric)
    for name, predictor in (("shared_next", _main(run)), ("deployed_next", None)):
        found = measured(run, predictor, metric=metric, population="all", moment="before")
        values = found.set_index(["client", "round"])["value"].rename(name)
        table = table.join(values, on=["client", "round"])
    found = pd.DataFrame(
        {
            "client": table["client"],
            "round": table["round"] + 1,
            "previous": table["round"],
            "delta_shared": table["shared_next"] - table["shared_after"],
            "delta_deployed": table["deployed_next"] - table["deployed_after"],
        }
    )
    return found[table["shared_next"].notna()].reset_index(drop=True)
