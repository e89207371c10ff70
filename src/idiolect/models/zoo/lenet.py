"""LeNets: two 5x5 convolutions with pooling, then linear layers.

LeCun et al., Proc. IEEE 86(11), 1998, here with ReLU and max-pooling as in the federated papers.  `lenet5` is
the classic size, MAP's "original LeNet" (Li et al., IEEE TKDE 2024); `lenet_map` is the net of MAP's released
code, `lenet_fedrepo` that of the authors' FedPHP code (Li et al., ECML-PKDD 2021), `lenet_2d` the net of
MAP's pictures of features and proxies. Units: each convolution
block, each hidden linear layer with its ReLU, the classifier. MAP's authors initialise by the scheme `map`;
the framework's default is the default here.
"""

from __future__ import annotations

from idiolect.models.feedforward_builder import Convolution, stack
from idiolect.models.net import Net

__all__ = ["lenet5", "lenet_2d", "lenet_bn", "lenet_fedrepo", "lenet_map"]

_WIDE = (Convolution(16, 5, pool=2), Convolution(16, 5, pool=2))


def lenet_map(
    *, in_channels: int, image_size: tuple[int, int], n_classes: int, head_bias: bool = False
) -> Net:
    """Convolutions of 16 and 16 filters under a single linear head: 9 392 parameters at 1x28x28, 10 classes.

    Args:
        in_channels: C of the images.
        image_size: height and width; features are 256 at 28x28 and 400 at 32x32.
        n_classes: K, outputs of the head.
        head_bias: whether the head has a bias; the released code has none.
    """
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=_WIDE,
        head_bias=head_bias,
    )


def lenet_fedrepo(*, in_channels: int, image_size: tuple[int, int], n_classes: int) -> Net:
    """The convolutions of `lenet_map` under linear 120-84-K: 48 686 parameters at 1x28x28, 10 classes."""
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=_WIDE,
        hidden=(120, 84),
    )


def lenet5(*, in_channels: int, image_size: tuple[int, int], n_classes: int) -> Net:
    """Convolutions of 6 and 16 filters, linear 120-84-K: 61 706 parameters at 1x32x32, 10 classes.

    A 28x28 image is padded by 2 zeros on each side, as LeCun et al. do, so the net and its size stay the
    same.
    """
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=_classic(image_size),
        hidden=(120, 84),
    )


def lenet_2d(
    *,
    in_channels: int,
    image_size: tuple[int, int],
    n_classes: int,
    relu: bool = True,
    head_bias: bool = False,
) -> Net:
    """`lenet5` with a last hidden layer of width 2, to be drawn: 50 954 parameters at 1x28x28, 10 classes.

    MAP, figures 5 (with and without ReLU) and 8 (without).

    Args:
        in_channels: C of the images.
        image_size: height and width of the images; 28x28 is padded as in `lenet5`.
        n_classes: K, outputs of the head.
        relu: whether a ReLU stands between the two features and the head.
        head_bias: whether the head has a bias; without one a class is its proxy alone.
    """
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=_classic(image_size),
        hidden=(120, 2),
        head_bias=head_bias,
        last_activation=relu,
    )


def lenet_bn(*, in_channels: int, image_size: tuple[int, int], n_classes: int) -> Net:
    """A very small LeNet with batch normalisation: 4 and 8 filters, one linear head.

    From no paper: it is here to try things that concern normalisation in seconds.
    """
    return stack(
        image_shape=(in_channels, *image_size),
        n_classes=n_classes,
        convolutions=(Convolution(4, 5, pool=2, normalised=True), Convolution(8, 5, pool=2, normalised=True)),
    )


def _classic(image_size: tuple[int, int]) -> tuple[Convolution, Convolution]:
    """The convolutions of LeNet-5, made for 32x32."""
    padding = 2 if image_size == (28, 28) else 0
    return Convolution(6, 5, padding=padding, pool=2), Convolution(16, 5, pool=2)
