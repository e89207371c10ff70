"""Residual nets: the CIFAR family of MAP, and FedPer's ResNet-34.

He et al., CVPR 2016 (https://arxiv.org/abs/1512.03385).  A basic block is two 3x3 convolutions without bias,
each followed by batch normalisation, and a shortcut: the identity, or where the shape changes a 1x1
convolution with batch normalisation (He et al., option B).  Units: the stem, every basic block, the
classifier; the average over positions belongs to the last block.

`resnet20` and `resnet56` follow MAP (Li et al., IEEE TKDE 2024), whose authors initialise by the scheme
`map`; `resnet34` follows FedPer (Arivazhagan et al., 2019; https://arxiv.org/abs/1912.00818).  The framework's
default is the default initialisation here.

Deviations: He et al. have identity shortcuts with padded zeros in their CIFAR nets; MAP's code has 1x1
convolutions. FedPer does not say which stem its ResNet-34 had: unless told, images of more than 64x64, such as those
of FLICKR-AES, get the published one, and smaller ones a 3x3 convolution, because the published one would shrink them
too much.
"""

from __future__ import annotations

from torch import Tensor, nn

from idiolect.errors import refuse_unknown_choice
from idiolect.models.masked_batchnorm import MaskedBatchNorm
from idiolect.models.net import Net
from idiolect.models.sharing_unit import Unit

__all__ = ["Residual", "resnet20", "resnet34", "resnet56"]

Stages = tuple[tuple[int, int], ...]  # (channels, blocks), input to output

_SMALL = 64  # height and width up to which an image is small


def resnet20(
    *, in_channels: int, image_size: tuple[int, int], n_classes: int, head_bias: bool = False
) -> Net:
    """Three stages of 3 blocks, 16-32-64 channels: 272 464 parameters at 3x32x32, 10 classes.

    Args:
        in_channels: C of the images.
        image_size: height and width, whatever they are.
        n_classes: K, outputs of the head.
        head_bias: whether the head has a bias; MAP's released code has none.
    """
    return _resnet(_small_stem(in_channels, 16), ((16, 3), (32, 3), (64, 3)), n_classes, head_bias)


def resnet56(
    *, in_channels: int, image_size: tuple[int, int], n_classes: int, head_bias: bool = False
) -> Net:
    """Three stages of 9 blocks, 16-32-64 channels: 855 760 parameters at 3x32x32, 10 classes."""
    return _resnet(_small_stem(in_channels, 16), ((16, 9), (32, 9), (64, 9)), n_classes, head_bias)


def resnet34(*, in_channels: int, image_size: tuple[int, int], n_classes: int, stem: str = "auto") -> Net:
    """Sixteen blocks, 64-128-256-512 channels, head with bias: 21 282 122 parameters at 3x32x32, 10 classes.

    Args:
        in_channels: C of the images.
        image_size: height and width, whatever they are.
        n_classes: K, outputs of the head.
        stem: `cifar` is a 3x3 convolution; `imagenet` a 7x7 one of stride 2, then 3x3 max-pooling of stride 2
            (21 289 802 parameters), as He et al. have it; `auto` is `imagenet` on images of more than 64x64 and
            `cifar` on others.
    """
    refuse_unknown_choice("model resnet34: stem", stem, ("auto", "cifar", "imagenet"))
    large = stem == "imagenet" or (stem == "auto" and max(image_size) > _SMALL)
    first = _large_stem(in_channels, 64) if large else _small_stem(in_channels, 64)
    return _resnet(first, ((64, 3), (128, 4), (256, 6), (512, 3)), n_classes, head_bias=True)


def _resnet(stem: Unit, stages: Stages, n_classes: int, head_bias: bool) -> Net:
    """Every stage but the first begins by halving the map."""
    units: list[nn.Module] = [stem]
    channels, total = stages[0][0], sum(count for _, count in stages)
    for stage, (next_channels, count) in enumerate(stages):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            units.append(_basic_block(channels, next_channels, stride, last=len(units) == total))
            channels = next_channels
    return Net([*units, Unit(linear=nn.Linear(channels, n_classes, bias=head_bias))])


def _basic_block(in_channels: int, channels: int, stride: int, last: bool) -> Residual:
    body = Unit(
        convolution_1=_convolution(in_channels, channels, 3, stride),
        normalisation_1=MaskedBatchNorm(channels),
        activation=nn.ReLU(),
        convolution_2=_convolution(channels, channels, 3, 1),
        normalisation_2=MaskedBatchNorm(channels),
    )
    shortcut = Unit()
    if (in_channels, stride) != (channels, 1):
        shortcut = Unit(
            convolution=_convolution(in_channels, channels, 1, stride),
            normalisation=MaskedBatchNorm(channels),
        )
    pool = {"pool": nn.AdaptiveAvgPool2d(1)} if last else {}
    return Residual(body, shortcut, Unit(activation=nn.ReLU(), **pool))


def _small_stem(in_channels: int, channels: int) -> Unit:
    return Unit(
        convolution=_convolution(in_channels, channels, 3, 1),
        normalisation=MaskedBatchNorm(channels),
        activation=nn.ReLU(),
    )


def _large_stem(in_channels: int, channels: int) -> Unit:
    return Unit(
        convolution=_convolution(in_channels, channels, 7, 2),
        normalisation=MaskedBatchNorm(channels),
        activation=nn.ReLU(),
        pool=nn.MaxPool2d(3, stride=2, padding=1),
    )


def _convolution(in_channels: int, channels: int, kernel: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(in_channels, channels, kernel, stride, padding=kernel // 2, bias=False)


class Residual(nn.Module):
    """A residual block: two paths from input to output whose values are added.

        y = after(body(x) + shortcut(x))        He et al., eq. (1) and (2)

    The block is one unit: FedPer's split never cuts it, so the sum always belongs to one owner.

    Args:
        body: the long path.
        shortcut: the short path; `Unit()`, which has no layers, is the identity.
        after: what follows the sum.
    """

    def __init__(self, body: Unit, shortcut: Unit, after: Unit) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut
        self.after = after

    def forward(self, x: Tensor, mask: Tensor, train: bool, key: Tensor) -> Tensor:
        both = self.body(x, mask, train, key) + self.shortcut(x, mask, train, key)
        y: Tensor = self.after(both, mask, train, key)
        return y
