"""The catalogue: names, options, and a sentence for every wrong request."""

import inspect

import pytest
import torch

from idiolect.errors import UserError
from idiolect.models import BatchContext, build, describe, names, options, suggested


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


@pytest.mark.parametrize("shape", [(12,), (6, 2), (3, 2, 2), (1, 3, 2, 2)])
def test_nets_that_flatten_take_rows_of_any_shape(shape):
    for name in ("mlpnet(hidden=3)", "persfl_dnn(hidden=3)"):
        net = build(name, shape, 4)
        assert net(torch.randn(5, *shape), BatchContext.plain(5, net.n_units)).logits.shape == (5, 4)


def test_flat_rows_are_images_of_one_line():
    net = build("resnet20", (9,), 4)
    x = torch.randn(3, 9)
    found = net(x, BatchContext.plain(3, net.n_units)).logits
    image = build("resnet20", (1, 1, 9), 4)
    assert torch.equal(found, image(x[:, None, None], BatchContext.plain(3, net.n_units)).logits)
    tokens = build("char_lstm(hidden=3)", (7,), 4)
    assert tokens(torch.zeros(2, 7).long(), BatchContext.plain(2, 4)).logits.shape == (2, 4)


def test_rows_that_are_no_images_are_refused_with_a_way_out():
    with pytest.raises(
        UserError, match=r"lenet5 takes images .* these rows are 6x2; use mlpnet or persfl_dnn"
    ):
        build("lenet5", (6, 2), 10)
    with pytest.raises(UserError, match="lenet5 cannot take images of 1x30"):
        build("lenet5", (30,), 10)


def test_usual_network_fits_the_rows():
    narrow, wide = "mlpnet(hidden=64, head_bias=True)", "mlpnet(hidden=512, head_bias=True)"
    usual = {(3, 32, 32): "lenet_map", (1, 1, 60): narrow, (60,): narrow, (20, 3): narrow, (9, 128): wide}
    assert {shape: suggested(shape, "classification", None) for shape in usual} == usual
    assert suggested((5,), "next_token", 12) == "char_lstm(vocabulary=12)"
    for shape, name in usual.items():
        build(name, shape, 2)
