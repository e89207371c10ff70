"""MobileNet-v1: depthwise-separable convolutions, the small net of FedPer.

Howard et al., 2017, table 1 (https://arxiv.org/abs/1704.04861), as FedPer uses it (Arivazhagan et al., 2019;
https://arxiv.org/abs/1912.00818).  A block is a 3x3 convolution of every channel by itself and a 1x1
convolution of all of them, each without bias and followed by batch normalisation and ReLU.  Units: the stem,
every block, the classifier; the average over positions belongs to the last block.  Initialisation: the
framework's default.

Deviations: on images of at most 32x32 the stem has stride 1, not 2, or too little would be left of them.
FedPer counts 11 blocks where the published net has 13 and does not say which are gone: `blocks=11` leaves out
two of the five equal ones of 512 channels.
"""

from __future__ import annotations

from torch import nn

from idiolect.errors import UserError
from idiolect.models.masked_batchnorm import MaskedBatchNorm
from idiolect.models.net import Net
from idiolect.models.sharing_unit import Unit

__all__ = ["mobilenet_v1"]

_STEM = 32
# (channels, stride) of the blocks before, in and after the run of equal ones.
_BEFORE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2))
_EQUAL = (512, 1)
_AFTER = ((1024, 2), (1024, 1))


def mobilenet_v1(*, in_channels: int, image_size: tuple[int, int], n_classes: int, blocks: int = 13) -> Net:
    """Stem, 13 blocks, linear head with bias on 1024 features: 3 217 226 parameters at 3x32x32, 10 classes.

    Args:
        in_channels: C of the images.
        image_size: height and width; the stem has stride 1 up to 32x32, else 2.
        n_classes: K, outputs of the head.
        blocks: 13, or the 11 that FedPer counts.
    """
    if blocks not in (11, 13):
        raise UserError(f"model mobilenet_v1: blocks={blocks} should be 11 or 13")
    stride = 1 if max(image_size) <= 32 else 2
    stem = Unit(
        convolution=nn.Conv2d(in_channels, _STEM, 3, stride, padding=1, bias=False),
        normalisation=MaskedBatchNorm(_STEM),
        activation=nn.ReLU(),
    )
    units, channels = [stem], _STEM
    plan = (*_BEFORE, *[_EQUAL] * (blocks - len(_BEFORE) - len(_AFTER)), *_AFTER)
    for number, (next_channels, stride) in enumerate(plan, start=1):
        units.append(_block(channels, next_channels, stride, last=number == blocks))
        channels = next_channels
    return Net([*units, Unit(linear=nn.Linear(channels, n_classes))])


def _block(in_channels: int, channels: int, stride: int, last: bool) -> Unit:
    each = nn.Conv2d(in_channels, in_channels, 3, stride, padding=1, groups=in_channels, bias=False)
    layers: dict[str, nn.Module] = {
        "depthwise": each,
        "normalisation_1": MaskedBatchNorm(in_channels),
        "activation_1": nn.ReLU(),
        "pointwise": nn.Conv2d(in_channels, channels, 1, bias=False),
        "normalisation_2": MaskedBatchNorm(channels),
        "activation_2": nn.ReLU(),
    }
    if last:
        layers["pool"] = nn.AdaptiveAvgPool2d(1)
    return Unit(**layers)
