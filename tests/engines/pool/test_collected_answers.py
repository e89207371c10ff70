"""Answers come in any order, stacked or not, and stand in the order of the clients."""

from __future__ import annotations

import torch

from idiolect.core.trees import Rows
from idiolect.engines.pool.engine import CollectedAnswers


def rows(*numbers: float) -> Rows:
    return Rows({"x": torch.tensor(numbers)}, len(numbers))


def test_stacked_answers_stay_stacked_and_are_copied() -> None:
    found, outbox = CollectedAnswers([7, 3, 5]), rows(5.0, 7.0)
    found.add([5, 7], outbox)
    outbox.stacked["x"].zero_()  # the worker has another task
    found.add([3], rows(3.0))
    together = found.all()
    assert isinstance(together, Rows)
    assert together.stacked["x"].tolist() == [7.0, 3.0, 5.0]


def test_stacked_and_single_answers_go_together() -> None:
    found = CollectedAnswers([7, 3, 5])
    found.add([5, 7], rows(5.0, 7.0))
    found.add([3], [{"x": torch.tensor(3.0)}])
    assert [answer["x"].item() for answer in found.all()] == [7.0, 3.0, 5.0]
