"""Local optimisers against those of torch.optim."""

import pytest
import torch

from idiolect.core import adam, adamw, sgd
from idiolect.core.optimiser import local_optimiser, resolved_optimiser
from idiolect.core.trees import tree_leaves
from idiolect.errors import UserError

STEPS = 30


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


def assert_same_path(ours, theirs_of, clip_norm):
    leaves = {n: w.requires_grad_() for n, w in start().items()}
    theirs = theirs_of(leaves.values())
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


@pytest.mark.parametrize("clip_norm", [None, 0.5, 1000.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_path_is_that_of_torch(momentum, weight_decay, clip_norm):
    ours = local_optimiser("sgd", momentum, weight_decay, clip_norm)
    assert_same_path(
        ours, lambda leaves: torch.optim.SGD(leaves, 0.1, momentum, weight_decay=weight_decay), clip_norm
    )


@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.5, 0.8), (0.0, 0.0)])
@pytest.mark.parametrize(("name", "theirs"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_moments_are_those_of_torch(name, theirs, betas, weight_decay, clip_norm):
    text = f"{name}(beta_one={betas[0]}, beta_two={betas[1]}, epsilon=1e-6)"
    ours = local_optimiser(text, 0.9, weight_decay, clip_norm)
    assert_same_path(
        ours,
        lambda leaves: theirs(leaves, lr=0.1, betas=betas, eps=1e-6, weight_decay=weight_decay),
        clip_norm,
    )


def test_spellings_of_one_optimiser_are_one():
    assert resolved_optimiser("adam") == resolved_optimiser("adam(epsilon=1e-8, beta_one=0.9)")
    assert resolved_optimiser("sgd()") == ("sgd", {})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("adma", "unknown optimiser 'adma'; did you mean adam or adamw?"),
        (
            "adam(beta=1)",
            "optimiser adam has no option 'beta'; known: beta_one, beta_two, epsilon; "
            "did you mean beta_two or beta_one?",
        ),
        (
            "adam(weight_decay=1)",
            "optimiser adam has no option 'weight_decay'; known: beta_one, beta_two, epsilon",
        ),
        ("sgd(momentum=0.9)", "optimiser sgd has no option 'momentum'; it takes none"),
        ("adam(beta_two=one)", "optimiser adam: option beta_two must be float, got 'one'"),
        ("adamw(beta_two=1)", "beta_two must be in [0, 0.999999], got 1"),
        ("adam(epsilon=0)", "epsilon must be at least 1e-30, got 0"),
    ],
)
def test_unusable_optimiser_is_refused_in_a_sentence(text, sentence):
    with pytest.raises(UserError) as refused:
        local_optimiser(text, 0.9, 0.0, None)
    assert str(refused.value) == sentence


@pytest.mark.parametrize("optimiser", [sgd(0.9, 0.1, 0.5), adam(clip_norm=0.5), adamw(weight_decay=0.1)])
def test_update_changes_no_input(optimiser):
    params, grads = {"model": start()}, {"model": gradients()[0]}
    memory = optimiser.init(params)
    optimiser.update(grads, memory, params, 0.1)
    torch.testing.assert_close(params["model"], start(), rtol=0, atol=0)
    torch.testing.assert_close(grads["model"], gradients()[0], rtol=0, atol=0)
    assert all(v.abs().max() == 0 for v in tree_leaves(memory))


@pytest.mark.parametrize("optimiser", [sgd(0.9), adam(), adamw(weight_decay=0.1)])
def test_stage_that_trains_nothing_is_no_error(optimiser):
    empty = {"model": {}}
    assert optimiser.update(empty, optimiser.init(empty), empty, 0.1)[0] == empty


def test_memory_starts_at_rest_and_is_absent_without_momentum():
    params = {"model": start()}
    assert sgd(0.0).init(params) == {}
    assert all(v.abs().max() == 0 for v in sgd(0.9).init(params)["model"].values())
