"""Scores of every predictor by metric and client, and the choice of a predictor on validation data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from idiolect.core import Choice
from idiolect.errors import UserError
from idiolect.evaluation.metrics import METRICS, Metric
from idiolect.evaluation.predictions import Units, collect_predictions

__all__ = ["Scores", "choose", "mean_defined", "score"]

Scores = dict[str, dict[str, list[float]]]  # predictor -> metric -> one value per client


def score(
    logits: Sequence[Mapping[str, Tensor]],
    labels: Sequence[Tensor],
    metrics: Mapping[str, Metric] = METRICS,
    units: Units | None = None,
) -> Scores:
    """Computes every metric of every predictor on every client.

    Args:
        units: by which the targets of a regression were standardised.
    """
    found: Scores = {}
    for predictor in logits[0] if logits else ():
        predictions = collect_predictions([each[predictor] for each in logits], labels, units)
        found[predictor] = {name: metric.function(predictions).tolist() for name, metric in metrics.items()}
    return found


def choose(
    choices: Sequence[Choice],
    valid: Scores,
    test: Scores,
    metric: str = "accuracy",
    higher_is_better: bool = True,
) -> tuple[Scores, dict[str, str]]:
    """Returns the test scores of each chosen predictor and of the oracle's, and the names of the members chosen.

    One member of a family serves all clients: the one with the best mean of ``metric`` on validation data, or the first
    of equals.  The oracle chooses by test data instead and is named so; without validation scores there is only the
    oracle.
    """
    found: Scores = {}
    picks: dict[str, str] = {}
    for choice in choices:
        family = [name for name in test if name.startswith(choice.family)]
        if not family:
            raise UserError(f"no predictor {choice.family}...) to choose {choice.name} from")
        rules = {choice.name: valid} if valid else {}
        for name, chosen_on in (rules | {choice.oracle: test}).items():
            means = np.array([mean_defined(chosen_on[member][metric]) for member in family])
            picks[name] = family[_best(means if higher_is_better else -means)]
            found[name] = test[picks[name]]
    return found, picks


def mean_defined(values: Sequence[float]) -> float:
    """Returns the mean over the clients for whom a metric is defined; NaN where it is for none.

    >>> mean_defined([0.5, float("nan"), 1.0])
    0.75
    """
    defined = [value for value in values if value == value]
    return float(np.mean(defined)) if defined else float("nan")


def _best(means: NDArray[np.float64]) -> int:
    return int(np.nanargmax(means)) if np.isfinite(means).any() else 0
