"""VGG nets for 32x32 images: 3x3 convolutions with padding 1, halved five times to 512 features.

Simonyan and Zisserman, ICLR 2015 (https://arxiv.org/abs/1409.1556), in the versions of FedPHP (Li et al.,
ECML-PKDD 2021) and MAP (Li et al., IEEE TKDE 2024): the large linear layers of the original are replaced by
one linear head without bias, except in `vgg11_fc`, the nearest to the original. Units: every convolution with
its normalisation, ReLU and pooling; each hidden linear layer with its ReLU and dropout; the classifier.
MAP's authors initialise by the scheme `map`; the framework's default is the default here.
"""

from __future__ import annotations

from idiolect.models.feedforward_builder import Convolution, stack
from idiolect.models.net import Net

__all__ = ["vgg8", "vgg8_bn", "vgg11", "vgg11_fc", "vgg16_bn"]

# Filters of the convolutions between one pooling and the next.
_VGG8 = ((64,), (128,), (256,), (512,), (512,))
_VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))
_VGG16 = ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3)


def vgg8(*, in_channels: int, image_size: tuple[int, int], n_classes: int, head_bias: bool = False) -> Net:
    """Five convolutions, one linear head: 3 915 904 parameters at 3x32x32, 10 classes.

    Args:
        in_channels: C of the images.
        image_size: height and width, at least 32; features are 512 at 32x32.
        n_classes: K, outputs of the head.
        head_bias: whether the head has a bias; MAP's released code has none.
    """
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=_convolutions(_VGG8),
        head_bias=head_bias,
    )


def vgg8_bn(*, in_channels: int, image_size: tuple[int, int], n_classes: int, head_bias: bool = False) -> Net:
    """`vgg8` with batch normalisation after each convolution: 3 918 848 parameters at 3x32x32, 10 classes."""
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=_convolutions(_VGG8, normalised=True),
        head_bias=head_bias,
    )


def vgg11(
    *,
    in_channels: int,
    image_size: tuple[int, int],
    n_classes: int,
    head_bias: bool = False,
    normalised: bool = False,
) -> Net:
    """Eight convolutions, one linear head: 9 225 600 parameters at 3x32x32, 10 classes.

    Args:
        in_channels: C of the images.
        image_size: height and width, at least 32.
        n_classes: K, outputs of the head.
        head_bias: whether the head has a bias.
        normalised: whether batch normalisation follows each convolution (MAP's study of a head): 9 231 104 parameters.
    """
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=_convolutions(_VGG11, normalised),
        head_bias=head_bias,
    )


def vgg11_fc(*, in_channels: int, image_size: tuple[int, int], n_classes: int, dropout: float = 0.5) -> Net:
    """The convolutions of `vgg11` under linear layers 512-512-K: 9 750 922 parameters at 3x32x32, 10 classes.

    Args:
        in_channels: C of the images.
        image_size: height and width, at least 32.
        n_classes: K, outputs of the head.
        dropout: rate after both hidden layers, in [0, 1).
    """
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=_convolutions(_VGG11),
        hidden=(512, 512),
        dropout=dropout,
    )


def vgg16_bn(
    *, in_channels: int, image_size: tuple[int, int], n_classes: int, head_bias: bool = False
) -> Net:
    """Thirteen normalised convolutions, one linear head: 14 728 256 parameters at 3x32x32, 10 classes."""
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=_convolutions(_VGG16, normalised=True),
        head_bias=head_bias,
    )


def _convolutions(stages: tuple[tuple[int, ...], ...], normalised: bool = False) -> tuple[Convolution, ...]:
    """The convolutions of all stages, the last of each followed by pooling."""
    return tuple(
        Convolution(channels, 3, padding=1, pool=2 if last else 1, normalised=normalised)
        for stage in stages
        for channels, last in zip(stage, [False] * (len(stage) - 1) + [True], strict=True)
    )
