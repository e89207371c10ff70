"""Accuracy along the segment between the shared and the private model (SuPerFed, figures 2 and 4)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.statistics.dispersion import spread
from idiolect.statistics.measurements import client_scores

__all__ = ["alpha_profile"]

MIXTURE = re.compile(r"mix\((\d+(?:\.\d+)?)\)")


def alpha_profile(runs: Sequence[Run], metric: str | None = None) -> pd.DataFrame:
    """Returns `alpha`, `clients`, `seeds`, `mean`, `sd_clients_ddof0`, `sd_clients_ddof1` of the final mixtures.

    Mean and SD are over clients within a seed, then averaged over seeds.  Choosing the best alpha
    from a profile is a choice on test data: use `pick` with ``split="test"``, which says so.

    Raises:
        UserError: the runs have no predictors `mix(number)`.
    """
    names = sorted(
        {name for run in runs for name in run.rows["predictor"].unique() if MIXTURE.fullmatch(name)}
    )
    if not names:
        raise UserError(
            "an alpha profile needs runs with predictors mix(0.0) to mix(1.0), such as SuPerFed's"
        )
    lines = []
    for name in names:
        seeds = [spread(client_scores(run, name, metric=metric)) for run in runs]
        means = pd.DataFrame(seeds)[["mean", "sd_ddof0", "sd_ddof1"]].mean(skipna=False)
        alpha = float(MIXTURE.fullmatch(name)[1])  # type: ignore[index]
        lines.append((alpha, int(seeds[0]["clients"]), len(seeds), *means))
    columns = ["alpha", "clients", "seeds", "mean", "sd_clients_ddof0", "sd_clients_ddof1"]
    return pd.DataFrame(lines, columns=columns).sort_values("alpha", ignore_index=True)
