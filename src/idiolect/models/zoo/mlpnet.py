"""MLPNet: the fully connected net of the MAP experiments on Fashion-MNIST.

MAP: Li et al., IEEE TKDE 2024, "two hidden layers" of 512 on images scaled to 32x32.  Units: each hidden
linear layer with its ReLU, the classifier.

Deviations: the paper's released code keeps 28x28 images and uses hidden layers of 1024, 1024 and 128
(`official`). The head has no bias, as in that code; restricted softmax then scales exactly the products with
the proxies. The authors initialise by the scheme `map`; the framework's default is the default here.
"""

from __future__ import annotations

from idiolect.errors import UserError
from idiolect.models.feedforward_builder import stack
from idiolect.models.net import Net

__all__ = ["mlpnet"]

_PAPER_WIDTH = 512
_OFFICIAL_WIDTHS = (1024, 1024, 128)


def mlpnet(
    *,
    in_channels: int,
    image_size: tuple[int, int],
    n_classes: int,
    hidden: int = _PAPER_WIDTH,
    official: bool = False,
    head_bias: bool = False,
) -> Net:
    """Flattened image, two hidden layers with ReLU, linear head; 792 576 parameters at 1x32x32, 10 classes.

    Args:
        in_channels: C of the images.
        image_size: height and width of the images.
        n_classes: K, outputs of the head.
        hidden: width of both hidden layers.
        official: the widths of the released code, 1024-1024-128, instead of twice `hidden`.
        head_bias: whether the head has a bias.
    """
    if official and hidden != _PAPER_WIDTH:
        raise UserError(f"mlpnet: official=True fixes the widths, so hidden={hidden} cannot be given with it")
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        hidden=_OFFICIAL_WIDTHS if official else (hidden, hidden),
        head_bias=head_bias,
    )
