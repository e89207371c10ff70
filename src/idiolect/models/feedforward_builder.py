"""Stacks of layers described as data: convolution blocks, hidden linear layers, a classifier.

Every net of the zoo without branches is one call of `stack`, so that its definition reads like its line in a
paper. Units: each convolution block, each hidden linear layer with its ReLU and dropout, the classifier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from idiolect.errors import UserError
from idiolect.models.dropout import PlannedDropout
from idiolect.models.masked_batchnorm import MaskedBatchNorm
from idiolect.models.net import Net
from idiolect.models.sharing_unit import Unit

__all__ = ["Convolution", "ImageDoesNotFit", "stack"]


class ImageDoesNotFit(UserError):
    """The net cannot take images of this size: the message says why, the caller which net and image."""


class Convolution(NamedTuple):
    """A convolution with bias, then ReLU; square kernel, stride 1.

    Attributes:
        channels: of the output.
        kernel: side of the kernel.
        padding: zeros added on every side of the image.
        pool: side and stride of the max-pooling after the ReLU; 1 is none.
        normalised: with batch normalisation between convolution and ReLU.
    """

    channels: int
    kernel: int
    padding: int = 0
    pool: int = 1
    normalised: bool = False

    def size_after(self, size: tuple[int, int]) -> tuple[int, int]:
        """Returns height and width of the block's output for an image of this size."""
        convolved = [side + 2 * self.padding - self.kernel + 1 for side in size]
        if min(convolved) < self.pool:
            what = f"a {self.kernel}x{self.kernel} convolution with {self.pool}x{self.pool} pooling"
            raise ImageDoesNotFit(f"{what} leaves nothing of a {size[0]}x{size[1]} map")
        return convolved[0] // self.pool, convolved[1] // self.pool

    def unit(self, in_channels: int) -> Unit:
        layers: dict[str, nn.Module] = {
            "convolution": nn.Conv2d(in_channels, self.channels, self.kernel, padding=self.padding)
        }
        if self.normalised:
            layers["normalisation"] = MaskedBatchNorm(self.channels)
        layers["activation"] = nn.ReLU()
        if self.pool > 1:
            layers["pool"] = nn.MaxPool2d(self.pool)
        return Unit(**layers)


def stack(
    *,
    image_shape: tuple[int, int, int],
    n_classes: int,
    convolutions: Sequence[Convolution] = (),
    hidden: Sequence[int] = (),
    head_bias: bool = True,
    dropout: float | None = None,
    last_activation: bool = True,
) -> Net:
    """Builds a net of convolution blocks, hidden linear layers with ReLU and a linear classifier.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: K, outputs of the classifier.
        convolutions: in order.
        hidden: widths of the hidden linear layers, in order.
        head_bias: whether the classifier has a bias.
        dropout: rate after each hidden layer; None puts no dropout layer there.
        last_activation: whether there is a ReLU between the last hidden layer and the classifier.
    """
    channels, height, width = image_shape
    units, size = [], (height, width)
    for convolution in convolutions:
        units.append(convolution.unit(channels))
        channels, size = convolution.channels, convolution.size_after(size)
    width = channels * size[0] * size[1]
    for index, next_width in enumerate(hidden):
        active = last_activation or index < len(hidden) - 1
        units.append(_hidden(width, next_width, index, active, dropout))
        width = next_width
    units.append(Unit(linear=nn.Linear(width, n_classes, bias=head_bias)))
    return Net(units)


def _hidden(width: int, next_width: int, index: int, active: bool, dropout: float | None) -> Unit:
    """Builds a hidden linear unit; the first of a net flattens the image or map that enters it."""
    layers: dict[str, nn.Module] = {"flatten": nn.Flatten()} if index == 0 else {}
    layers["linear"] = nn.Linear(width, next_width)
    if active:
        layers["activation"] = nn.ReLU()
    if dropout is not None:
        layers["dropout"] = PlannedDropout(dropout, index)
    return Unit(**layers)
