"""TFCNN: the three-convolution net of the TensorFlow tutorial, used on CIFAR by FedPHP and MAP.

FedPHP: Li et al., ECML-PKDD 2021; MAP: Li et al., IEEE TKDE 2024.  3x3 convolutions with padding 1 and 32,
64, 64 filters, each followed by ReLU and 2x2 max-pooling. `tfcnn_tf` is the tutorial's own net, without
padding. Units: each convolution block, the hidden linear layer with its ReLU (`tfcnn_fc`, `tfcnn_tf`), the
classifier. MAP's authors initialise by the scheme `map`; the
framework's default is the default here.
"""

from __future__ import annotations

from idiolect.models.feedforward_builder import Convolution, stack
from idiolect.models.net import Net

__all__ = ["tfcnn", "tfcnn_fc", "tfcnn_tf"]

_CONVOLUTIONS = tuple(Convolution(channels, 3, padding=1, pool=2) for channels in (32, 64, 64))


def tfcnn(*, in_channels: int, image_size: tuple[int, int], n_classes: int, head_bias: bool = False) -> Net:
    """A single linear head on 1024 features: 66 560 parameters at 3x32x32, 10 classes (158 720 with 100).

    Args:
        in_channels: C of the images.
        image_size: height and width of the images.
        n_classes: K, outputs of the head.
        head_bias: whether the head has a bias; MAP's released code has none.
    """
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=_CONVOLUTIONS,
        head_bias=head_bias,
    )


def tfcnn_fc(*, in_channels: int, image_size: tuple[int, int], n_classes: int) -> Net:
    """The same convolutions under linear layers 128-K: 188 810 parameters at 3x32x32, 10 classes."""
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=_CONVOLUTIONS,
        hidden=(128,),
    )


def tfcnn_tf(*, in_channels: int, image_size: tuple[int, int], n_classes: int) -> Net:
    """The tutorial's net, pooled after the first two of three convolutions: 122 570 parameters at 3x32x32.

    3x3 convolutions without padding and 32, 64, 64 filters, linear layers 64-K, everything with biases; the
    count is for 10 classes.  The net that federated benchmarks call "small CNN".
    """
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=(Convolution(32, 3, pool=2), Convolution(64, 3, pool=2), Convolution(64, 3)),
        hidden=(64,),
    )
