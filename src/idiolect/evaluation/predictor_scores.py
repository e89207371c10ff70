"""Scores of every predictor by metric and client, and the choice of a predictor on validation data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from idiolect.core import Choice
from idiolect.errors import UserError
from idiolect.evaluation.metrics import METRICS, Metric
from idiolect.evaluation.predictions import collect_predictions

__all__ = ["Scores", "choose", "score"]

Scores = dict[str, dict[str, list[float]]]  # predictor -> metric -> one value per client


def score(
    logits: Sequence[Mapping[str, Tensor]], labels: Sequence[Tensor], metrics: Mapping[str, Metric] = METRICS
) -> Scores:
    """Computes every metric of every predictor on every client."""
    found: Scores = {}
    for predictor in logits[0] if logits else ():
        predictions = collect_predictions([each[predictor] for each in logits], labels)
        found[predictor] = {name: metric.function(predictions).tolist() for name, metric in metrics.items()}
    return found


def choose(choices: Sequence[Choice], valid: Scores, test: Scores) -> tuple[Scores, dict[str, str]]:
    """Returns the test scores of each chosen predictor and of the oracle's, and the names of the members chosen.

    One member of a family serves all clients: the one with the best mean validation accuracy, or the first of equals.
    The oracle chooses by test accuracy instead and is named so; without validation scores there is only the oracle.
    """
    found: Scores = {}
    picks: dict[str, str] = {}
    for choice in choices:
        family = [name for name in test if name.startswith(choice.family)]
        if not family:
            raise UserError(f"no predictor {choice.family}...) to choose {choice.name} from")
        rules = {choice.name: valid} if valid else {}
        for name, chosen_on in (rules | {choice.oracle: test}).items():
            picks[name] = _best(family, chosen_on)
            found[name] = test[picks[name]]
    return found, picks


def _best(family: list[str], scores: Scores) -> str:
    means = [np.mean(scores[name]["accuracy"]) for name in family]
    return family[int(np.argmax(means))]
