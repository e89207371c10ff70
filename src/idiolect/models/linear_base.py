"""FedPer's ablation: all base layers replaced by a single linear one.

FedPer: Arivazhagan et al., 2019, section 4.4 (https://arxiv.org/abs/1912.00818): the base layers become one
fully connected layer without non-linearity, to show that what clients share must be more than a linear map.
Units: the linear base, the classifier.  Initialisation: the framework's default.

Deviations: the paper does not give the width of the layer; 512 is the width of the features of its ResNet-34.
"""

from __future__ import annotations

from torch import nn

from idiolect.models.net import Net
from idiolect.models.unit import Unit

__all__ = ["linear_base"]


def linear_base(*, in_channels: int, image_size: tuple[int, int], n_classes: int, features: int = 512) -> Net:
    """Flattened image, one linear layer without activation, linear classifier with bias.

    Args:
        in_channels: C of the images.
        image_size: height and width of the images.
        n_classes: K, outputs of the classifier.
        features: d, width of the linear base.
    """
    inputs = in_channels * image_size[0] * image_size[1]
    base = Unit(flatten=nn.Flatten(), linear=nn.Linear(inputs, features))
    return Net([base, Unit(linear=nn.Linear(features, n_classes))])
