"""Losses of the tasks against PyTorch's own, and rows of padding, which count nowhere."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from idiolect.core import CLASS_TASKS, OBJECTIVES

REAL = 5
OUTPUTS = torch.randn(REAL + 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
MASK = torch.tensor([1.0] * REAL + [0.0] * 3, dtype=torch.float64)
NUMBERS = torch.randn(REAL + 3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
TARGETS = {"multilabel": (NUMBERS > 0).double(), "regression": NUMBERS}
CLASSES = torch.arange(REAL + 3) % 4
THEIRS = {
    **dict.fromkeys(CLASS_TASKS, F.cross_entropy),
    "multilabel": F.binary_cross_entropy_with_logits,
    "regression": F.mse_loss,
}


@pytest.mark.parametrize("task", OBJECTIVES)
def test_loss_is_the_mean_over_real_rows_and_outputs(task):
    targets = TARGETS.get(task, CLASSES)
    found = OBJECTIVES[task].loss(OUTPUTS, targets, MASK)
    assert found.item() == pytest.approx(THEIRS[task](OUTPUTS[:REAL], targets[:REAL]).item(), rel=1e-12)


@pytest.mark.parametrize("task", OBJECTIVES)
def test_padding_has_no_gradient_whatever_it_holds(task):
    outputs = OUTPUTS.clone()
    outputs[REAL:] = 1e30
    outputs.requires_grad_()
    OBJECTIVES[task].loss(outputs, TARGETS.get(task, CLASSES), MASK).backward()
    assert not outputs.grad[REAL:].any() and outputs.grad[:REAL].all(1).all()


def test_loss_of_classes_is_bit_for_bit_the_mean_of_negative_log_probabilities():
    scores = F.log_softmax(OUTPUTS, -1).gather(-1, CLASSES[:, None]).squeeze(-1)
    plain = -torch.where(MASK > 0, scores, 0).sum() / MASK.sum()
    assert torch.equal(OBJECTIVES["classification"].loss(OUTPUTS, CLASSES, MASK), plain)


def test_merit_is_higher_for_better_predictions():
    assert OBJECTIVES["classification"].merit(OUTPUTS, OUTPUTS.argmax(1)).tolist() == [1.0] * len(OUTPUTS)
    labels = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    assert OBJECTIVES["multilabel"].merit(torch.tensor([[1.0, -1.0], [-1.0, 2.0]]), labels).tolist() == [
        1.0,
        0.5,
    ]
    near, far = (OBJECTIVES["regression"].merit(labels + gap, labels) for gap in (0.1, 1.0))
    assert (near > far).all()
