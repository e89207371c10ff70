"""Counts from which calibration and confusions can be computed later, for one client, for some or for all together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from idiolect.evaluation.calibration import BINS, bins_of
from idiolect.evaluation.predictions import Predictions, collect_predictions

__all__ = ["Counts", "PredictionCounts", "count_predictions", "joined_counts"]


class PredictionCounts(NamedTuple):
    """One predictor's counts on the samples of some clients, as rows of numbers.

    Args:
        bins: [rows, 5] client, bin of confidence, samples, sum of confidences, samples predicted right.
        confusion: [rows, 4] client, true class, predicted class, samples.
    """

    bins: NDArray[np.float64]
    confusion: NDArray[np.float64]


Counts = dict[str, PredictionCounts]  # by predictor


def count_predictions(
    logits: Sequence[Mapping[str, Tensor]], labels: Sequence[Tensor], clients: Sequence[int]
) -> Counts:
    """Counts every predictor's samples by client, in the bins of the calibration errors and by class.

    Only cells with samples are listed.  The task must have classes.
    """
    found: Counts = {}
    for predictor in logits[0] if logits else ():
        predictions = collect_predictions([each[predictor] for each in logits], labels)
        found[predictor] = PredictionCounts(*(_of(clients, rows) for rows in _counted(predictions)))
    return found


def joined_counts(groups: Iterable[Counts]) -> Counts:
    """Returns the counts of several groups of clients as those of one, in the order given."""
    found: dict[str, list[PredictionCounts]] = {}
    for counts in groups:
        for predictor, each in counts.items():
            found.setdefault(predictor, []).append(each)
    return {
        predictor: PredictionCounts(*(np.concatenate(tables) for tables in zip(*each, strict=True)))
        for predictor, each in found.items()
    }


def _counted(predictions: Predictions) -> tuple[Tensor, Tensor]:
    """Returns the rows of both tables, with the place of a client in place of its number."""
    hits = predictions.label_rank == 0
    place = bins_of(predictions.confidence, BINS)
    each = (None, predictions.confidence, hits)
    tables = torch.stack([predictions.table(place, BINS, values) for values in each], -1)
    cells = (tables[..., 0] > 0).nonzero()
    bins = torch.cat([cells, tables[cells[:, 0], cells[:, 1]]], 1)
    triples = torch.stack([predictions.owner, predictions.labels, predictions.predicted], 1)
    kinds, counts = triples.unique(dim=0, return_counts=True)
    return bins, torch.cat([kinds, counts[:, None]], 1)


def _of(clients: Sequence[int], rows: Tensor) -> NDArray[np.float64]:
    table = rows.double().numpy()
    table[:, 0] = np.asarray(clients, np.float64)[table[:, 0].astype(np.int64)]
    return table
