"""What a sweep takes from a run: the validation accuracy it chooses by, and what the choice is worth."""

from __future__ import annotations

import math
from typing import NamedTuple

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.statistics import client_scores, headline, server_curve

__all__ = ["Scores", "scores"]


class Scores(NamedTuple):
    """Accuracies in [0, 1], means over clients; ``server`` is NaN for a method without a global model."""

    valid: float
    test: float
    server: float


def scores(run: Run) -> Scores:
    """Of the method's headline predictor, after everything; one that stands for a choice, by what was chosen."""
    name = str(run.manifest.get("choices", {}).get(headline(run), headline(run)))
    valid, test = (client_scores(run, name, split=split) for split in ("valid", "test"))
    if valid.empty:
        raise UserError(f"run {run.manifest['name']} was not scored on validation data")
    server = server_curve(run)
    return Scores(
        float(valid.mean()), float(test.mean()), float(server.iloc[-1]) if len(server) else math.nan
    )
