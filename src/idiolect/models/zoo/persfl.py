"""The two nets of PersFL.

PersFL: Divi, Farrukh and Celik, "Unifying Distillation with Personalization in Federated Learning", 2021
(https://arxiv.org/abs/2105.15191): a LeNet-like net for CIFAR-10 and a net with one hidden layer for MNIST.
Units: each convolution block, each hidden linear layer with its ReLU, the classifier.
Initialisation: the framework's default, as the authors' code.

Deviations: none; the "400" among the paper's layers is the flattened size of the map that enters the first
linear one.
"""

from __future__ import annotations

from idiolect.models.feedforward_builder import Convolution, stack
from idiolect.models.net import Net

__all__ = ["persfl_cnn", "persfl_dnn"]


def persfl_cnn(*, in_channels: int, image_size: tuple[int, int], n_classes: int) -> Net:
    """5x5 convolutions of 6 and 16 filters, linear 120-84-K: 62 006 parameters at 3x32x32, 10 classes."""
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=(Convolution(6, 5, pool=2), Convolution(16, 5, pool=2)),
        hidden=(120, 84),
    )


def persfl_dnn(*, in_channels: int, image_size: tuple[int, int], n_classes: int, hidden: int = 100) -> Net:
    """One hidden layer: 79 510 parameters at 1x28x28, 10 classes.

    Args:
        in_channels: C of the images.
        image_size: height and width of the images.
        n_classes: K, outputs of the classifier.
        hidden: width of the hidden layer.
    """
    return stack(image_shape=(in_channels, *image_size), n_classes=n_classes, hidden=(hidden,))
