"""Residual and depthwise nets against the same nets in plain torch, and what one unit of theirs is."""

import pytest
import torch
from torch import nn

from idiolect.models import BatchContext, MaskedBatchNorm, build


class BasicBlock(nn.Module):
    """He et al.'s block in plain torch."""

    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or inputs != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


def plain_resnet(stem, stages, n_classes, bias):
    layers, channels = list(stem), stages[0][0]
    for stage, (width, count) in enumerate(stages):
        for block in range(count):
            layers.append(BasicBlock(channels, width, 2 if stage and not block else 1))
            channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, n_classes, bias))


def plain_mobilenet(widths_and_strides, n_classes):
    layers, channels = [nn.Conv2d(3, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()], 32
    for width, stride in widths_and_strides:
        layers += [
            nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        ]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, n_classes))


def small_stem(channels):
    return [nn.Conv2d(3, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]


def large_stem():
    return [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]


WIDE = ((64, 3), (128, 4), (256, 6), (512, 3))
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
PLAIN = {
    "resnet20": ((3, 12, 9), lambda: plain_resnet(small_stem(16), ((16, 3), (32, 3), (64, 3)), 5, False)),
    "resnet56": ((3, 8, 8), lambda: plain_resnet(small_stem(16), ((16, 9), (32, 9), (64, 9)), 5, False)),
    "resnet34": ((3, 16, 16), lambda: plain_resnet(small_stem(64), WIDE, 5, True)),
    "resnet34(stem=imagenet)": ((3, 40, 40), lambda: plain_resnet(large_stem(), WIDE, 5, True)),
    "mobilenet_v1": ((3, 32, 32), lambda: plain_mobilenet(BLOCKS, 5)),
}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("spec", PLAIN)
def test_net_equals_the_same_net_in_plain_torch(spec, train):
    """Values, gradients and running statistics, with the same numbers in tensors of the same order."""
    torch.manual_seed(0)
    shape, make = PLAIN[spec]
    ours, plain = build(spec, shape, 5).double(), make().double().train(train)
    with torch.no_grad():
        for mine, theirs in zip(ours.parameters(), plain.parameters(), strict=True):
            assert mine.shape == theirs.shape
            theirs.copy_(mine)
    x, weights = torch.randn(3, *shape, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    found, expected = ours(x, BatchContext.plain(3, ours.n_units, train=train))[1], plain(x)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    for logits in (found, expected):
        (logits * weights).sum().backward()
    for (name, mine), theirs in zip(ours.named_parameters(), plain.parameters(), strict=True):
        scale = theirs.grad.abs().max().item()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0, atol=1e-9 * max(scale, 1e-3), msg=name)
    running = [b for name, b in plain.named_buffers() if "tracked" not in name]
    for (name, mine), theirs in zip(ours.named_buffers(), running, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10, msg=name)


def scalars(net, unit):
    held = dict(net.named_parameters())
    return sum(held[name].numel() for name in net.unit_names(unit) if name in held)


def test_fedpers_two_layers_of_resnet34_are_its_last_block_and_the_classifier():
    net = build("resnet34", (3, 32, 32), 10)
    assert (scalars(net, -2), scalars(net, -1)) == (4_720_640, 5_130)
    assert scalars(net, 0) == 3 * 64 * 9 + 2 * 64


def test_a_unit_of_mobilenet_is_one_separable_block():
    net = build("mobilenet_v1", (3, 32, 32), 10)
    assert scalars(net, -2) == 1024 * 9 + 2 * 1024 + 1024 * 1024 + 2 * 1024
    assert scalars(net, 1) == 32 * 9 + 2 * 32 + 32 * 64 + 2 * 64


@pytest.mark.parametrize("name", ["resnet20", "mobilenet_v1"])
def test_a_frozen_block_keeps_all_its_statistics(name):
    torch.manual_seed(0)
    net, x = build(name, (3, 16, 16), 5), torch.randn(4, 3, 16, 16)
    how = BatchContext.plain(4, net.n_units, train=True)
    frozen = 4  # the first block of resnet20 with a shortcut of its own
    net(x, how._replace(train=tuple(unit != frozen for unit in range(net.n_units))))
    still = {name for name, buffer in net.named_buffers() if torch.equal(buffer, buffer.round())}
    assert still == {key for key in net.unit_names(frozen) if "running" in key}
    assert len(still) == (6 if name == "resnet20" else 4)


@pytest.mark.parametrize(("size", "side"), [(32, 32), (28, 28), (33, 17), (64, 32)])
def test_mobilenet_halves_large_images_in_its_stem(size, side):
    net = build("mobilenet_v1", (3, size, size), 2)
    assert net.units[0](torch.zeros(1, 3, size, size), torch.ones(1), False, torch.zeros(1)).shape[-1] == side


def test_convolutions_before_normalisation_have_no_bias():
    for name in ("resnet20", "resnet34", "mobilenet_v1"):
        net = build(name, (3, 32, 32), 10)
        layers = list(net.modules())
        assert all(layer.bias is None for layer in layers if isinstance(layer, nn.Conv2d)), name
        counts = [sum(isinstance(layer, kind) for layer in layers) for kind in (nn.Conv2d, MaskedBatchNorm)]
        assert counts[0] == counts[1] > 0, name
