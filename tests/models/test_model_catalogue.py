"""The catalogue: names, options, and a sentence for every wrong request."""

import inspect

import pytest
import torch

from idiolect.errors import UserError
from idiolect.models import build, describe, names, options


def test_description_has_a_row_for_every_model():
    rows = describe()
    assert tuple(row.name for row in rows) == names() and len(set(names())) == len(names())
    assert all(row.line and row.parameters > 0 for row in rows)


@pytest.mark.parametrize("name", names())
def test_every_option_can_be_given_its_default(name):
    shape = next(row.image_shape for row in describe() if row.name == name)
    given = ", ".join(f"{key}={value!r}" for key, value in options(name).items())
    left, right = build(f"{name}({given})", shape, 3).state_dict(), build(name, shape, 3).state_dict()
    assert left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)


def test_options_change_the_net():
    assert build("mlpnet(hidden=5)", (1, 4, 4), 3).units[0].linear.weight.shape == (5, 16)
    assert build("vgg11_fc(dropout=0.25)", (3, 32, 32), 3).units[-2].dropout.rate == 0.25
    assert build("persfl_dnn(hidden=6)", (1, 4, 4), 3).units[1].linear.weight.shape == (3, 6)
    assert build("linear_base(net=mobilenet_v1)", (1, 4, 4), 3).units[1].linear.weight.shape == (3, 1024)


WRONG = [
    ("lenet55", (1, 28, 28), "unknown model 'lenet55'; did you mean lenet5"),
    (
        "mlpnet(width=3)",
        (1, 28, 28),
        "mlpnet has no option 'width'; its options: hidden, official, head_bias",
    ),
    ("lenet5(width=3)", (1, 28, 28), "lenet5 has no option 'width'; it has no options"),
    ("mlpnet(n_classes=3)", (1, 28, 28), "no option 'n_classes'"),
    ("mlpnet(hidden=wide)", (1, 28, 28), "hidden='wide' should be a value of type int"),
    ("mlpnet(hidden=True)", (1, 28, 28), "hidden=True should be a value of type int"),
    ("mlpnet(head_bias=1)", (1, 28, 28), "head_bias=1 should be a value of type bool"),
    ("mlpnet(hidden=0)", (1, 28, 28), "hidden=0 should be at least 1"),
    ("mlpnet(official=True, hidden=64)", (1, 28, 28), "official=True fixes the widths"),
    ("vgg11_fc(dropout=1)", (3, 32, 32), "dropout rate 1 is outside"),
    ("vgg8", (3, 28, 28), "vgg8 cannot take images of 28x28: .* leaves nothing of a 1x1 map"),
    ("lenet_map", (1, 4, 28), "lenet_map cannot take images of 4x28"),
    ("lenet5", (1, 15, 15), "lenet5 cannot take images of 15x15"),
    ("superfed_cnn", (3, 30, 30), "superfed_cnn cannot take images of 30x30: .* 28x28, 32x32, 64x64"),
    ("superfed_cnn", (3, 28, 32), "superfed_cnn cannot take images of 28x32"),
    ("mlpnet", (0, 28, 28), "positive sizes"),
    ("resnet34(stem=large)", (3, 32, 32), "resnet34: stem must be one of auto, cifar, imagenet; got 'large'"),
    ("resnet34(stem=3)", (3, 32, 32), "stem=3 should be a value of type str"),
    ("mobilenet_v1(blocks=12)", (3, 32, 32), "mobilenet_v1: blocks=12 should be 11 or 13"),
    ("femnistnet", (1, 1, 1), "femnistnet cannot take images of 1x1"),
]


@pytest.mark.parametrize(("spec", "shape", "sentence"), WRONG)
def test_wrong_request_is_refused_in_a_sentence(spec, shape, sentence):
    with pytest.raises(UserError, match=sentence):
        build(spec, shape, 10)


def test_smallest_image_is_accepted():
    assert build("lenet5", (1, 16, 16), 10).units[2].linear.weight.shape == (120, 16)
    assert build("vgg8", (3, 32, 33), 10).units[-1].linear.weight.shape == (10, 512)


def test_arguments_and_defaults_of_build_are_stable():
    defaults = {key: p.default for key, p in inspect.signature(build).parameters.items()}
    assert list(defaults) == ["spec", "input_shape", "outputs", "initialisation", "seed", "inputs"]
    assert defaults["initialisation"] == "default" and defaults["seed"] == 0
