"""The digest of an architecture changes with what a network computes, and with nothing else."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from idiolect.models import Convolution, from_module, register_model, stack
from idiolect.models.architecture_digest import architecture
from idiolect.models.registered_models import REGISTERED
from idiolect.models.zoo import ZOO

SHAPE = (1, 8, 8)


@pytest.fixture
def digest():
    """Of a net that a builder makes, under one name whoever it is."""

    def found(builder, spec="mine", shape=SHAPE):
        REGISTERED.pop("mine", None)
        register_model("mine", builder)
        return architecture(spec, shape, 3)

    yield found
    REGISTERED.pop("mine", None)


def stacked(**options):
    given = {"convolutions": (Convolution(2, 3, pool=2),), "hidden": (4,), **options}

    def build(*, in_channels, image_size, n_classes):
        return stack(image_shape=(in_channels, *image_size), n_classes=n_classes, **given)

    return build


def sequence(*layers, head=9):
    def build(*, in_channels, image_size, n_classes):
        return from_module(nn.Sequential(*layers), nn.Linear(head, n_classes))

    return build


def test_models_of_the_zoo_have_digests_of_their_own():
    found = {name: architecture(name, entry.standard_shape, 10) for name, entry in ZOO.items()}
    assert len(set(found.values())) == len(ZOO)
    assert architecture("mlpnet(hidden=512)", (1, 32, 32), 10) == found["mlpnet"]
    assert architecture("mlpnet(hidden=511)", (1, 32, 32), 10) != found["mlpnet"]
    assert architecture("mlpnet", (1, 32, 32), 11) != found["mlpnet"]


@pytest.mark.parametrize(
    "changed",
    [
        {"convolutions": (Convolution(2, 3, pool=2, padding=1),)},
        {"convolutions": (Convolution(2, 3, pool=3),)},
        {"convolutions": (Convolution(2, 3, pool=2, normalised=True),)},
        {"hidden": (5,)},
        {"head_bias": False},
    ],
)
def test_another_layer_is_another_architecture(digest, changed):
    assert digest(stacked()) == digest(stacked())
    assert digest(stacked(**changed)) != digest(stacked())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([nn.Conv2d(1, 1, 3, stride=2, padding=1)], [nn.Conv2d(1, 1, 3, stride=2, padding=1, dilation=2)]),
        ([nn.Conv2d(1, 1, 3), nn.ReLU()], [nn.Conv2d(1, 1, 3), nn.ELU()]),
        ([nn.Conv2d(1, 1, 3), nn.ELU(0.5)], [nn.Conv2d(1, 1, 3), nn.ELU(0.6)]),
        ([nn.Conv2d(1, 1, 3), nn.Dropout(0.5)], [nn.Conv2d(1, 1, 3), nn.Dropout(0.4)]),
        ([nn.Conv2d(1, 1, 3), nn.BatchNorm2d(1)], [nn.Conv2d(1, 1, 3), nn.BatchNorm2d(1, eps=1e-3)]),
    ],
)
def test_another_setting_of_a_layer_is_another_architecture(digest, one, other):
    assert digest(sequence(*one)) == digest(sequence(*one))
    assert digest(sequence(*one)) != digest(sequence(*other))


class Branches(nn.Module):
    """A module of one's own, whose forward no list of layers tells."""

    def __init__(self, activation=F.relu, slope=0.1, crossed=False):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 1, 3, stride=2), nn.Conv2d(1, 1, 3, stride=2)
        self.rest = lambda a, b: activation(b if crossed else a) + slope * b

    def forward(self, x):
        return self.rest(self.first(x), self.second(x))


def branches(**options):
    return lambda **sizes: from_module(Branches(**options), nn.Linear(9, sizes["n_classes"]))


def of_one_net(**options):
    def build(*, in_channels, image_size, n_classes):
        return branches(**options)(n_classes=n_classes)

    return build


@pytest.mark.parametrize("changed", [{"activation": torch.tanh}, {"slope": 0.2}, {"crossed": True}])
def test_what_a_module_of_ones_own_computes_is_part_of_its_architecture(digest, changed):
    assert digest(of_one_net()) == digest(of_one_net())
    assert digest(of_one_net(**changed)) != digest(of_one_net())


def test_initial_values_are_no_part_of_the_architecture(digest):
    def halved(**sizes):
        net = of_one_net()(**sizes)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(0.5)
        return net

    def build(*, in_channels, image_size, n_classes):
        return halved(in_channels=in_channels, image_size=image_size, n_classes=n_classes)

    assert digest(build) == digest(of_one_net())


def test_options_of_a_registered_model_are_part_of_it_however_they_are_written(digest):
    def build(*, in_channels, image_size, n_classes, rate=0.5):
        return sequence(nn.Conv2d(1, 1, 3), nn.Dropout(rate))(
            in_channels=in_channels, image_size=image_size, n_classes=n_classes
        )

    assert digest(build) == digest(build, "mine(rate=0.5)")
    assert digest(build) != digest(build, "mine(rate=0.25)")


def test_random_state_is_left_alone(digest):
    before = torch.get_rng_state()
    digest(of_one_net())
    assert torch.equal(torch.get_rng_state(), before)
