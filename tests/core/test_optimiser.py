"""Local SGD against torch.optim.SGD."""

import pytest
import torch

from idiolect.core import sgd

STEPS = 5


def start():
    generator = torch.Generator().manual_seed(2)
    shapes = {"weight": (3, 4), "bias": (3,)}
    return {n: torch.randn(s, generator=generator, dtype=torch.float64) for n, s in shapes.items()}


def gradients():
    generator = torch.Generator().manual_seed(3)
    return [
        {n: torch.randn(w.shape, generator=generator, dtype=torch.float64) for n, w in start().items()}
        for _ in range(STEPS)
    ]


@pytest.mark.parametrize("clip_norm", [None, 0.5, 1000.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_path_is_that_of_torch(momentum, weight_decay, clip_norm):
    leaves = {n: w.requires_grad_() for n, w in start().items()}
    theirs = torch.optim.SGD(leaves.values(), lr=0.1, momentum=momentum, weight_decay=weight_decay)
    ours = sgd(momentum, weight_decay, clip_norm)
    params = {"model": start()}
    memory = ours.init(params)
    for grads in gradients():
        for name, leaf in leaves.items():
            leaf.grad = grads[name].clone()
        if clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(leaves.values(), clip_norm)
        theirs.step()
        params, memory = ours.update({"model": grads}, memory, params, 0.1)
        expected = {n: leaf.detach() for n, leaf in leaves.items()}
        torch.testing.assert_close(params["model"], expected, rtol=1e-12, atol=1e-14)


def test_update_changes_no_input():
    params, grads = {"model": start()}, {"model": gradients()[0]}
    optimiser = sgd(0.9, 0.1, 0.5)
    memory = optimiser.init(params)
    optimiser.update(grads, memory, params, 0.1)
    torch.testing.assert_close(params["model"], start(), rtol=0, atol=0)
    torch.testing.assert_close(grads["model"], gradients()[0], rtol=0, atol=0)
    assert all(v.abs().max() == 0 for v in memory["model"].values())


def test_memory_starts_at_rest_and_is_absent_without_momentum():
    params = {"model": start()}
    assert sgd(0.0).init(params) == {}
    assert all(v.abs().max() == 0 for v in sgd(0.9).init(params)["model"].values())
