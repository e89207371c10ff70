"""FedPer's linear base: one linear layer under each net's own last units; and the stem that large images get."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from idiolect.errors import UserError
from idiolect.models import BatchContext, build


@pytest.mark.parametrize("units", [2, 3, 4])
@pytest.mark.parametrize("net", ["resnet34", "mobilenet_v1"])
def test_kept_units_are_the_nets_own(net, units):
    """Names and shapes of the last K_P units are those of the whole net; all before is one linear layer."""
    whole, cut = build(net, (3, 32, 32), 7), build(f"linear_base(net={net}, units={units})", (3, 32, 32), 7)
    assert cut.n_units == units + 1
    for number in range(1, units + 1):
        of_cut = {k: tuple(v.shape) for k, v in cut.units[-number].state_dict().items()}
        assert of_cut == {k: tuple(v.shape) for k, v in whole.units[-number].state_dict().items()}
    layers = [type(layer) for layer in cut.units[0].children()]
    assert layers == [nn.Flatten, nn.Linear, nn.Unflatten]


@pytest.mark.parametrize(("net", "channels", "side"), [("resnet34", 512, 4), ("mobilenet_v1", 1024, 2)])
def test_linear_layer_makes_the_map_that_the_net_has_there(net, channels, side):
    """The last block of each net takes its map at 32 x 32: three halvings of ResNet-34, four of MobileNet."""
    cut = build(f"linear_base(net={net}, units=2)", (3, 32, 32), 7)
    assert cut.units[0].linear.weight.shape == (channels * side * side, 3 * 32 * 32)
    small = build(f"linear_base(net={net}, units=2, side=1)", (3, 32, 32), 7)
    assert small.units[0].linear.weight.shape == (channels, 3 * 32 * 32)
    x, how = torch.randn(2, 3, 32, 32), BatchContext.plain(2, 3)
    entered = cut.units[0](x, how.mask, False, how.key)
    flat = nn.functional.linear(x.flatten(1), cut.units[0].linear.weight, cut.units[0].linear.bias)
    torch.testing.assert_close(entered, flat.reshape(2, channels, side, side))
    assert cut(x, how)[1].shape == small(x, how)[1].shape == (2, 7)


def test_net_with_a_linear_base_runs_for_many_clients_at_once():
    net = build("linear_base(net=mobilenet_v1, units=2, side=1)", (1, 8, 8), 3)
    x, how = torch.randn(2, 4, 1, 8, 8), BatchContext.plain(4, 3)
    stacked = {name: torch.stack([value, 2 * value]) for name, value in net.state_dict().items()}
    both = vmap(lambda state, rows: functional_call(net, state, (rows, how))[1])(stacked, x)
    for client in range(2):
        state = {name: value[client] for name, value in stacked.items()}
        torch.testing.assert_close(both[client], functional_call(net, state, (x[client], how))[1])


@pytest.mark.parametrize(
    ("spec", "piece"),
    [
        ("linear_base(net=vgg8)", "net must be one of resnet34, mobilenet_v1; got 'vgg8'"),
        ("linear_base(units=18)", "units=18 should be less than the 18 of resnet34"),
        ("linear_base(side=1)", "side is for maps, and the classifier of units=1 takes a vector"),
    ],
)
def test_what_cannot_be_cut_is_refused(spec, piece):
    with pytest.raises(UserError, match=piece):
        build(spec, (3, 32, 32), 10)


@pytest.mark.parametrize(("size", "large"), [(8, False), (32, False), (64, False), (65, True), (224, True)])
def test_large_images_get_the_published_stem_of_resnet34(size, large):
    """7 x 7 of stride 2 and max-pooling of stride 2: 224 x 224 images enter the first block as 56 x 56."""
    stem = build("resnet34", (3, size, size), 5).units[0]
    names = [name for name, _ in stem.named_children()]
    assert stem.convolution.kernel_size == ((7, 7) if large else (3, 3))
    assert stem.convolution.stride == ((2, 2) if large else (1, 1)) and ("pool" in names) == large
    if size == 224:
        out = stem.to("meta")(
            torch.empty(1, 3, 224, 224, device="meta"), torch.ones(1, device="meta"), False, None
        )
        assert out.shape == (1, 64, 56, 56)
    with_choice = build("resnet34(stem=cifar)", (3, size, size), 5).units[0]
    assert with_choice.convolution.kernel_size == (3, 3)
