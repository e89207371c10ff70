"""From logits to scores by predictor, metric and client; and choices, made on validation data alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from idiolect.core import Choice
from idiolect.errors import UserError
from idiolect.evaluation.judged import judge
from idiolect.evaluation.metrics import METRICS, Metric

__all__ = ["Scores", "choose", "score"]

Scores = dict[str, dict[str, list[float]]]  # predictor -> metric -> one value per client


def score(
    logits: Sequence[Mapping[str, Tensor]], labels: Sequence[Tensor], metrics: Mapping[str, Metric] = METRICS
) -> Scores:
    """Every metric of every predictor on every client."""
    found: Scores = {}
    for predictor in logits[0] if logits else ():
        judged = judge([each[predictor] for each in logits], labels)
        found[predictor] = {name: metric.function(judged).tolist() for name, metric in metrics.items()}
    return found


def choose(choices: Sequence[Choice], valid: Scores, test: Scores) -> tuple[Scores, dict[str, str]]:
    """The scores on test data of each chosen predictor and of an oracle's, and which members they are.

    One member of the family serves all clients: the one with the best mean validation accuracy, the first of
    several.  The oracle looks at the test accuracy instead and is named so; without validation scores it is alone.
    """
    found: Scores = {}
    picks: dict[str, str] = {}
    for choice in choices:
        family = [name for name in test if name.startswith(choice.family)]
        if not family:
            raise UserError(f"no predictor {choice.family}...) to choose {choice.name} from")
        rules = {choice.name: valid} if valid else {}
        for name, judged_on in (rules | {choice.oracle: test}).items():
            picks[name] = _best(family, judged_on)
            found[name] = test[picks[name]]
    return found, picks


def _best(family: list[str], scores: Scores) -> str:
    means = [np.mean(scores[name]["accuracy"]) for name in family]
    return family[int(np.argmax(means))]
