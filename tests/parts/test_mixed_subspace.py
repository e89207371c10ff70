"""Penalties of SuPerFed (Hahn, Jeong, Lee 2022) as functions of the two models."""

from types import SimpleNamespace

import pytest
import torch

from idiolect.core import Model
from idiolect.parts import mixed_subspace


def models():
    generator = torch.Generator().manual_seed(1)
    return [
        {n: torch.randn(shape, generator=generator, dtype=torch.float64) for n, shape in SHAPES.items()}
        for _ in range(2)
    ]


SHAPES = {"a": (3, 2), "b": (3,), "c": (2, 3)}


def penalty(shared, own, received, orthogonality=0.0, proximity=0.0):
    part = mixed_subspace("model", orthogonality, proximity)
    view = SimpleNamespace(origin=Model(received, {}))
    loss = part.loss(lambda params, batch, out: torch.zeros(()).double(), view)
    return loss({"model": shared, "own": own}, None, None)


def leaves(tree):
    return {n: w.clone().requires_grad_() for n, w in tree.items()}


def test_orthogonality_is_the_squared_cosine_of_all_parameters_together():
    shared, own = models()
    g, v = (torch.cat([w.flatten() for w in tree.values()]) for tree in (shared, own))
    cosine = float((g @ v) / (g.norm() * v.norm()))
    assert abs(cosine) > 0.05
    assert float(penalty(shared, own, shared, orthogonality=3)) == pytest.approx(3 * cosine**2, rel=1e-9)


def test_gradient_of_orthogonality_is_orthogonal_to_its_own_vector():
    """cos^2 does not change when either model is scaled."""
    shared, own = (leaves(tree) for tree in models())
    penalty(shared, own, {}, orthogonality=2).backward()
    for tree in (shared, own):
        along = sum(float((w.grad * w.detach()).sum()) for w in tree.values())
        across = sum(float((w.grad**2).sum()) for w in tree.values())
        assert abs(along) < 1e-14
        assert across > 1e-4


def test_orthogonality_does_not_change_with_the_sign_of_a_model():
    shared, own = models()
    mirrored = {n: -w for n, w in own.items()}
    a, b = (penalty(shared, o, {}, orthogonality=1) for o in (own, mirrored))
    assert float(a) == pytest.approx(float(b), rel=1e-12)


def test_proximity_is_the_squared_distance_to_the_received_model_without_a_half():
    shared, received = models()
    expected = sum(float(((shared[n] - received[n]) ** 2).sum()) for n in SHAPES)
    found = penalty(shared, models()[1], received, proximity=0.5)
    assert float(found) == pytest.approx(0.5 * expected, rel=1e-12)


def test_private_model_is_not_held_near_the_received_one():
    shared, own = (leaves(tree) for tree in models())
    penalty(shared, own, models()[1], proximity=0.5).backward()
    assert all(w.grad is None or w.grad.abs().max() == 0 for w in own.values())


@pytest.mark.parametrize(
    ("share", "rounds", "length"),
    [(0.4, 4, 1), (0.4, 40, 16), (0.29, 100, 29), (0.3, 5, 1), (0.9, 5, 4), (0.0, 3, 0), (1.0, 3, 3)],
)
def test_first_phase_has_the_floor_of_its_share_of_the_rounds(share, rounds, length):
    """0.29 * 100 is 28.999... in floating point."""
    part = mixed_subspace(phase_one=share)
    views = [
        SimpleNamespace(private={}, clock=SimpleNamespace(round=t, rounds=rounds)) for t in range(rounds)
    ]
    mixed = ["own" in part.start({"model": {}}, {}, view)[0] for view in views]
    assert mixed == [t >= length for t in range(rounds)]
