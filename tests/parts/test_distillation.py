"""Soft-label losses against numpy and torch's own divergence, on real rows alone (Hinton et al. 2015)."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from idiolect.parts.distillation import FORMS, kl, kl_elements, soft_cross_entropy, teacher_only

ROWS, CLASSES, TAU = 6, 5, 3.0
FULL = torch.ones(ROWS).double()
PADDED = torch.tensor([1.0, 1, 1, 1, 0, 0]).double()


@pytest.fixture
def logits():
    random = np.random.default_rng(5)
    return [torch.from_numpy(2 * random.standard_normal((ROWS, CLASSES))) for _ in range(2)]


def softmax(z):
    e = np.exp(z)
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("mask", [FULL, PADDED], ids=["full", "padded"])
def test_values_agree_with_numpy(logits, mask):
    real = mask.numpy() > 0
    z, g = (t.numpy()[real] for t in logits)
    p, q = softmax(g / TAU), softmax(z / TAU)
    n = real.sum()
    expected = {
        kl: TAU**2 * (p * np.log(p / q)).sum() / n,
        kl_elements: TAU**2 * (p * np.log(p / q)).sum() / (n * CLASSES),
        soft_cross_entropy: -(TAU**2) * (p * np.log(q)).sum() / n,
        teacher_only: -(p * np.log(softmax(z))).sum() / n,
    }
    for form, value in expected.items():
        assert float(form(*logits, mask, TAU)) == pytest.approx(value, rel=1e-9)


def test_reductions_are_those_of_the_framework(logits):
    """batchmean is the divergence; the element-wise mean is 1/K of it."""
    student, teacher = logits
    arguments = (F.log_softmax(student / TAU, 1), F.softmax(teacher / TAU, 1))
    batchmean = TAU**2 * F.kl_div(*arguments, reduction="batchmean")
    elements = TAU**2 * F.kl_div(*arguments, reduction="none").mean()
    assert float(kl(student, teacher, FULL, TAU)) == pytest.approx(float(batchmean), rel=1e-9)
    assert float(kl_elements(student, teacher, FULL, TAU)) == pytest.approx(float(elements), rel=1e-9)
    assert float(batchmean / elements) == pytest.approx(CLASSES)


@pytest.mark.parametrize("temperature", [1.0, 5.0, 25.0])
def test_soft_cross_entropy_and_divergence_have_the_same_gradient(logits, temperature):
    student, teacher = logits[0].requires_grad_(), logits[1]
    grads = [
        torch.autograd.grad(form(student, teacher, PADDED, temperature), student)[0]
        for form in (kl, soft_cross_entropy)
    ]
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-14)
    assert grads[0][PADDED > 0].abs().max() > 1e-3
    assert grads[0][PADDED == 0].abs().max() == 0


@pytest.mark.parametrize("name", ["kl", "kl_elements", "soft_cross_entropy"])
def test_equal_outputs_have_no_gradient(logits, name):
    student = logits[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(FORMS[name](student, logits[0], FULL, TAU), student)
    assert gradient.abs().max() < 1e-15


def test_divergence_of_equal_outputs_is_zero_and_otherwise_positive(logits):
    assert float(kl(logits[0], logits[0], FULL, TAU)) == 0
    assert float(kl(*logits, FULL, TAU)) > 0


def test_divergence_stays_finite_for_extreme_logits():
    student, teacher = torch.tensor([[900.0, -900.0]]).double(), torch.tensor([[-900.0, 900.0]]).double()
    assert float(kl(student, teacher, torch.ones(1).double(), 1.0)) == pytest.approx(1800.0)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_batch_of_padding_costs_nothing(logits, form):
    assert float(form(*logits, torch.zeros(ROWS).double(), TAU)) == 0
