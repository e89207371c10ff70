"""The nets for handwritten characters of many writers (FEMNIST, 28x28, 62 classes).

`leaf_cnn` is the net of LEAF (Caldas et al., 2018; https://arxiv.org/abs/1812.01097), which FedPHP takes over
(Li et al., ECML-PKDD 2021); `femnistnet` is the smaller one of MAP's released code (Li et al., IEEE TKDE 2024:
two convolutions and one linear layer).  5x5 convolutions that keep the size, of 32 and 64 filters, with ReLU.
Units: each convolution block, the hidden linear layer with its ReLU, the classifier. MAP's authors initialise
by the scheme `map`; the framework's default is the default here.
"""

from __future__ import annotations

from torch import nn

from idiolect.models.feedforward_builder import Convolution, stack
from idiolect.models.net import Net
from idiolect.models.sharing_unit import Unit

__all__ = ["femnistnet", "leaf_cnn"]

_FIRST = Convolution(32, 5, padding=2, pool=2)
_SECOND = Convolution(64, 5, padding=2, pool=2)
_GRID = 4  # the map that enters femnistnet's head is 4x4, whatever the image


def leaf_cnn(*, in_channels: int, image_size: tuple[int, int], n_classes: int) -> Net:
    """Two convolutions, linear layers 2048-K: 6 603 710 parameters at 1x28x28, 62 classes."""
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=(_FIRST, _SECOND),
        hidden=(2048,),
    )


def femnistnet(
    *, in_channels: int, image_size: tuple[int, int], n_classes: int, head_bias: bool = False
) -> Net:
    """Two convolutions, averages over a 4x4 grid, one linear head: 115 584 parameters at 62 classes.

    Args:
        in_channels: C of the images; the count is for 1.
        image_size: height and width, at least 2.
        n_classes: K, outputs of the head.
        head_bias: whether the head has a bias; MAP's released code has none.
    """
    _FIRST.size_after(image_size)
    averaged = Unit(
        convolution=nn.Conv2d(_FIRST.channels, _SECOND.channels, _SECOND.kernel, padding=_SECOND.padding),
        activation=nn.ReLU(),
        pool=nn.AdaptiveAvgPool2d(_GRID),
    )
    head = Unit(linear=nn.Linear(_SECOND.channels * _GRID * _GRID, n_classes, bias=head_bias))
    return Net([_FIRST.unit(in_channels), averaged, head])
