"""What single models promise beyond the rest: where they pool, pad, stay linear or have no bias."""

import pytest
import torch
from torch import nn

from idiolect.models import BatchContext, build


@pytest.mark.parametrize(
    ("name", "pooled"),
    [("vgg8", [0, 1, 2, 3, 4]), ("vgg11", [0, 1, 3, 5, 7]), ("vgg16_bn", [1, 3, 6, 9, 12])],
)
def test_vgg_pools_after_the_last_convolution_of_a_stage(name, pooled):
    net = build(name, (3, 32, 32), 10)
    assert [i for i, unit in enumerate(net.units) if hasattr(unit, "pool")] == pooled


def test_normalisation_stands_between_convolution_and_activation():
    unit = build("vgg8_bn", (3, 32, 32), 10).units[0]
    assert [name for name, _ in unit.named_children()] == [
        "convolution",
        "normalisation",
        "activation",
        "pool",
    ]


@pytest.mark.parametrize("name", ["mlpnet", "lenet_map", "tfcnn", "vgg8", "resnet20", "femnistnet"])
def test_map_heads_have_no_bias(name):
    net = build(name, (3, 32, 32), 10)
    assert net.unit_names(-1) == (f"units.{net.n_units - 1}.linear.weight",)


def test_lenet5_pads_a_small_image_into_the_large_one():
    small, large = build("lenet5", (1, 28, 28), 10), build("lenet5", (1, 32, 32), 10)
    x, how = torch.randn(2, 1, 28, 28), BatchContext.plain(2, 5)
    padded = nn.functional.pad(x, (2, 2, 2, 2))
    torch.testing.assert_close(small(x, how)[1], large(padded, how)[1])


def test_superfed_head_equals_a_one_by_one_convolution():
    net, x = build("superfed_cnn", (3, 32, 32), 10), torch.randn(2, 3, 32, 32)
    how = BatchContext.plain(2, net.n_units)
    features, logits, _ = net(x, how)
    layer = net.units[-1].linear
    convolved = nn.functional.conv2d(features[:, :, None, None], layer.weight[:, :, None, None], layer.bias)
    torch.testing.assert_close(convolved.flatten(1), logits)


def test_linear_base_is_linear():
    net = build("linear_base", (1, 4, 4), 3)
    x, y, how = torch.randn(1, 1, 4, 4), torch.randn(1, 1, 4, 4), BatchContext.plain(1, 2)
    zero = net(torch.zeros_like(x), how)[1]
    torch.testing.assert_close(net(x + y, how)[1] + zero, net(x, how)[1] + net(y, how)[1])


@pytest.mark.parametrize("relu", [True, False])
def test_lenet_2d_draws_two_features_with_or_without_relu(relu):
    torch.manual_seed(0)
    net = build(f"lenet_2d(relu={relu})", (1, 28, 28), 10)
    x, how = torch.randn(40, 1, 28, 28), BatchContext.plain(40, net.n_units)
    with torch.no_grad():
        net.units[-2].linear.bias -= net.features(x, how).mean(0)
    features, logits, _ = net(x, how)
    assert features.shape == (40, 2) and bool((features < 0).any()) == (not relu)
    assert (features > 0).any()
    torch.testing.assert_close(logits, features @ net.units[-1].linear.weight.T)


def test_femnistnet_averages_over_a_four_by_four_grid():
    net = build("femnistnet", (1, 28, 28), 62)
    x, how = torch.randn(2, 1, 28, 28), BatchContext.plain(2, 3)
    first, second = net.units[0], net.units[1]
    maps = torch.relu(second.convolution(first(x, how.mask, False, how.key)))  # [2, 64, 14, 14]
    edges = [(0, 4), (3, 7), (7, 11), (10, 14)]
    grid = torch.stack([maps[..., a:b, c:d].mean((-2, -1)) for a, b in edges for c, d in edges], -1)
    torch.testing.assert_close(net.features(x, how), grid.flatten(1))


def test_tfcnn_tf_shrinks_the_map_to_four_by_four():
    net = build("tfcnn_tf", (3, 32, 32), 10)
    assert net.units[3].linear.weight.shape == (64, 1024)
    assert [hasattr(unit, "pool") for unit in net.units] == [True, True, False, False, False]
