"""The private head of FedROD (Chen and Chao, ICLR 2022) as a function of features and logits."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from idiolect.core import Out
from idiolect.parts import personal_head

COUNTS = torch.tensor([3.0, 0.0, 1.0], dtype=torch.float64)


def pieces():
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    features, head, shared = draw(6, 4), draw(3, 4), draw(3, 4)
    batch = SimpleNamespace(y=torch.tensor([0, 2, 0, 2, 0, 0]), mask=torch.ones(6).double())
    return features, shared, head, batch


def criterion(params, batch, out):
    return F.cross_entropy(out.logits, batch.y)


def loss_of(part, inner):
    view = SimpleNamespace(
        facts=SimpleNamespace(class_counts=COUNTS), task=SimpleNamespace(criterion=criterion)
    )
    return part.criterion(inner, view)


def nothing(params, batch, out):
    return torch.zeros(()).double()


def test_private_loss_has_no_gradient_on_features_and_shared_logits():
    features, shared, head, batch = pieces()
    out = Out(features, features @ shared.T)
    loss_of(personal_head(gamma=1), nothing)({"head": {"weight": head}}, batch, out).backward()
    assert features.grad is None or not features.grad.any()
    assert shared.grad is None or not shared.grad.any()
    assert head.grad.abs().max() > 1e-3


def test_private_head_gets_the_gradient_of_plain_cross_entropy():
    features, shared, head, batch = pieces()
    out = Out(features, features @ shared.T)
    loss_of(personal_head(gamma=1), criterion)({"head": {"weight": head}}, batch, out).backward()
    with torch.no_grad():
        p = torch.softmax(features @ shared.T + features @ head.T, 1) - F.one_hot(batch.y, 3)
        expected = p.T @ features / 6
    torch.testing.assert_close(head.grad, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_balanced_softmax_weighs_classes_with_a_power_of_their_counts(gamma):
    """p_c = n_c^gamma exp(z_c) / sum; a class without samples has none, but 0^0 = 1."""
    features, shared, _, _ = pieces()
    seen = []
    loss = loss_of(personal_head(gamma=gamma), lambda params, batch, out: seen.append(out.logits) or 0.0)
    batch = SimpleNamespace(y=torch.tensor([0, 2, 0, 2, 0, 0]))
    z = (features @ shared.T).detach()
    loss({"head": {"weight": torch.zeros(3, 4).double()}}, batch, Out(features.detach(), z))
    weighted = COUNTS**gamma * z.exp()
    torch.testing.assert_close(
        torch.softmax(seen[0], 1), weighted / weighted.sum(1, keepdim=True), rtol=1e-9, atol=0
    )


def test_multiplicative_prior_scales_logits_by_four_times_the_frequency():
    features, shared, _, _ = pieces()
    seen = []
    part = personal_head(gamma=0.5, prior="multiplicative")
    loss = loss_of(part, lambda params, batch, out: seen.append(out.logits) or 0.0)
    batch = SimpleNamespace(y=torch.tensor([0, 2, 0, 2, 0, 0]))
    z = (features @ shared.T).detach()
    loss({"head": {"weight": torch.zeros(3, 4).double()}}, batch, Out(features.detach(), z))
    torch.testing.assert_close(seen[0], z * torch.tensor([3.0, 0.0, 1.0]).double().sqrt())
