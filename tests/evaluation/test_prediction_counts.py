"""Counts by client, from which the calibration errors and accuracies follow that are recorded beside them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from idiolect.evaluation import count_predictions, joined_counts, score

random = torch.Generator().manual_seed(3)
SIZES = (7, 1, 30)
CLIENTS = [4, 9, 2]
LOGITS = [{name: 2 * torch.randn(n, 4, generator=random) for name in ("global", "own")} for n in SIZES]
LABELS = [torch.randint(4, (n,), generator=random) for n in SIZES]


def of(table: np.ndarray, client: int) -> np.ndarray:
    return table[table[:, 0] == client]


@pytest.mark.parametrize("predictor", ["global", "own"])
def test_recorded_errors_follow_from_the_counts(predictor):
    counts = count_predictions(LOGITS, LABELS, CLIENTS)[predictor]
    scores = score(LOGITS, LABELS)[predictor]
    for place, client in enumerate(CLIENTS):
        _, _, samples, confidence, correct = of(counts.bins, client).T
        assert samples.sum() == SIZES[place] and (samples > 0).all()
        gaps = np.abs(correct - confidence)
        assert gaps.sum() / samples.sum() == pytest.approx(scores["ece"][place], rel=1e-12)
        assert (gaps / samples).max() == pytest.approx(scores["mce"][place], rel=1e-12)
        _, truth, predicted, cells = of(counts.confusion, client).T
        assert cells.sum() == SIZES[place] and (cells > 0).all()
        assert cells[truth == predicted].sum() / cells.sum() == pytest.approx(scores["accuracy"][place])


def test_confusions_by_hand():
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 2.0], [2.0, 0.0]])
    (counts,) = count_predictions([{"a": logits}], [torch.tensor([0, 1, 0, 1])], [5]).values()
    assert counts.confusion.tolist() == [[5, 0, 0, 1], [5, 0, 1, 1], [5, 1, 0, 1], [5, 1, 1, 1]]


def test_groups_of_clients_join_to_the_counts_of_all():
    each = zip(LOGITS, LABELS, CLIENTS, strict=True)
    groups = [count_predictions([logits], [labels], [client]) for logits, labels, client in each]
    for predictor, whole in count_predictions(LOGITS, LABELS, CLIENTS).items():
        for one, other in zip(whole, joined_counts(groups)[predictor], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_nobody_has_no_counts():
    assert count_predictions([], [], []) == {} == joined_counts([])
