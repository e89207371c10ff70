"""Initialisation: a function of the seed, with the stated spread, leaving torch's own generator alone."""

import math

import pytest
import torch
from torch import nn

from idiolect.errors import UserError
from idiolect.models import SCHEMES, MaskedBatchNorm, Net, Unit, build, initialise
from idiolect.models.zoo.lenet import lenet_bn


def values(scheme, seed, name="lenet_bn"):
    return build(name, (1, 28, 28), 10, initialisation=scheme, seed=seed).state_dict()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_same_seed_gives_the_same_net(scheme):
    left, right = values(scheme, 5), values(scheme, 5)
    assert all(torch.equal(left[key], right[key]) for key in left)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_different_seeds_give_different_weights(scheme):
    left, right = values(scheme, 5), values(scheme, 6)
    weights = [key for key in left if key.endswith(("convolution.weight", "linear.weight"))]
    assert len(weights) == 3 and all(not torch.equal(left[key], right[key]) for key in weights)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_global_random_state_is_neither_moved_nor_read(scheme):
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    first = values(scheme, 5)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(1)
    second = values(scheme, 5)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_default_draws_what_the_framework_would_draw():
    torch.manual_seed(11)
    native = [
        nn.Conv2d(1, 6, 5),
        nn.Conv2d(6, 16, 5),
        nn.Linear(400, 120),
        nn.Linear(120, 84),
        nn.Linear(84, 10),
    ]
    net = build("lenet5", (1, 28, 28), 10, seed=11)
    ours = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    for left, right in zip(ours, native, strict=True):
        assert torch.equal(left.weight, right.weight) and torch.equal(left.bias, right.bias)


@pytest.mark.parametrize(
    ("scheme", "convolution", "linear"),
    [
        ("default", 1 / math.sqrt(3 * 32 * 9), 1 / math.sqrt(3 * 576)),
        ("map", math.sqrt(2 / (64 * 9)), 0.01),
        ("xavier", math.sqrt(2 / ((32 + 64) * 9)), math.sqrt(2 / (576 + 128))),
    ],
)
def test_schemes_have_the_stated_spread(scheme, convolution, linear):
    net = values(scheme, 0, "tfcnn_fc")
    for key, spread in (("units.1.convolution.weight", convolution), ("units.3.linear.weight", linear)):
        assert net[key].std().item() == pytest.approx(spread, rel=0.05), key
        assert abs(net[key].mean().item()) < 0.1 * spread, key


@pytest.mark.parametrize("scheme", ["map", "xavier"])
def test_biases_start_at_zero(scheme):
    net = values(scheme, 0, "lenet_fedrepo")
    assert all(not net[key].any() for key in net if key.endswith("bias"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_normalisation_is_reset(scheme):
    net = lenet_bn(in_channels=1, image_size=(28, 28), n_classes=3)
    with torch.no_grad():
        for tensor in net.state_dict().values():
            tensor.fill_(7.0)
    initialise(net, scheme, 0)
    for layer in (module for module in net.modules() if isinstance(module, MaskedBatchNorm)):
        for name, start in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            assert torch.equal(getattr(layer, name).detach(), torch.full((len(layer.bias),), start)), name
    assert all((tensor != 7.0).all() for tensor in net.state_dict().values())


def test_start_is_the_same_in_every_precision():
    net = lenet_bn(in_channels=1, image_size=(28, 28), n_classes=10).double()
    initialise(net, "map", 5)
    single = values("map", 5)
    assert all(torch.equal(tensor.float(), single[key]) for key, tensor in net.state_dict().items())


def test_unknown_scheme_is_refused_with_near_matches():
    with pytest.raises(UserError, match="did you mean xavier"):
        values("xavierr", 0)


def test_layer_no_scheme_knows_is_refused():
    net = Net([Unit(scale=nn.PReLU(), linear=nn.Linear(2, 2))])
    with pytest.raises(TypeError, match="PReLU"):
        initialise(net, "default", 0)
