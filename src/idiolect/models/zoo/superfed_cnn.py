"""The convolutional net of SuPerFed, in the three versions its image sizes need.

SuPerFed: Hahn, Jeong and Lee, KDD 2022 (https://arxiv.org/abs/2109.07628).  Convolutions without padding: 5x5
with 32 filters, 5x5 with 64, a third with 32, each followed by ReLU and max-pooling down to one position,
then 1x1 convolutions to 512 (ReLU) and to K.  Units: each convolution with its ReLU and pooling; the
classifier. The authors initialise by the scheme `xavier`; the framework's default is the default here.

Deviations: the last 1x1 convolution acts on a map of one position, so it is written as the linear layer it is
on the 512 features, with the same values and the same number of parameters; the head is then a single linear
layer.
"""

from __future__ import annotations

from idiolect.models.feedforward_builder import Convolution, ImageDoesNotFit, stack
from idiolect.models.net import Net

__all__ = ["superfed_cnn"]

# Side of the image -> (third kernel, side and stride of all pooling): EMNIST, CIFAR, TinyImageNet.
_VERSIONS = {28: (2, 2), 32: (3, 2), 64: (2, 3)}


def superfed_cnn(*, in_channels: int, image_size: tuple[int, int], n_classes: int) -> Net:
    """Four convolutions and a linear head on 512 features: 94 186 parameters at 3x32x32, 10 classes.

    Args:
        in_channels: C of the images.
        image_size: (28, 28), (32, 32) or (64, 64), which decides the version.
        n_classes: K, outputs of the head.
    """
    height, width = image_size
    if height != width or height not in _VERSIONS:
        sizes = ", ".join(f"{side}x{side}" for side in _VERSIONS)
        raise ImageDoesNotFit(f"it exists for images of {sizes} only")
    kernel, pool = _VERSIONS[height]
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=(
            Convolution(32, 5, pool=pool),
            Convolution(64, 5, pool=pool),
            Convolution(32, kernel, pool=pool),
            Convolution(512, 1),
        ),
    )
