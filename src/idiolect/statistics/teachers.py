"""The round each client's teacher comes from (PersFL, figure 2)."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from idiolect.errors import UserError
from idiolect.records import Run

__all__ = ["teacher_rounds"]

REMARK = "teacher round"


def teacher_rounds(runs: Sequence[Run]) -> pd.DataFrame:
    """By client: `round`, the mean over runs of the round with the least validation loss, and `runs`.

    Raises:
        UserError: a run has no remark about teachers.
    """
    found = []
    for run in runs:
        rows = run.rows[run.rows["metric"] == REMARK]
        if rows.empty:
            raise UserError(f"{run.manifest['name']} says nothing of teachers; PersFL records them")
        found.append(rows.set_index("client")["value"])
    rounds = pd.concat(found).groupby(level="client")
    return pd.DataFrame({"round": rounds.mean(), "runs": rounds.size()})
