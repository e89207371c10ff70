"""The zoo: every network of the package, by name.

The standard shape (C, H, W) is the one a net was made for; a net of tokens has the shape (1, 1, T).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from idiolect.models.net import Net
from idiolect.models.zoo.char_lstm import char_lstm
from idiolect.models.zoo.femnist import femnistnet, leaf_cnn
from idiolect.models.zoo.lenet import lenet5, lenet_2d, lenet_bn, lenet_fedrepo, lenet_map
from idiolect.models.zoo.linear_base import linear_base
from idiolect.models.zoo.mlpnet import mlpnet
from idiolect.models.zoo.mobilenet import mobilenet_v1
from idiolect.models.zoo.persfl import persfl_cnn, persfl_dnn
from idiolect.models.zoo.resnet import resnet20, resnet34, resnet56
from idiolect.models.zoo.superfed_cnn import superfed_cnn
from idiolect.models.zoo.tfcnn import tfcnn, tfcnn_fc, tfcnn_tf
from idiolect.models.zoo.vgg import vgg8, vgg8_bn, vgg11, vgg11_fc, vgg16_bn

__all__ = ["ZOO", "ZooEntry"]


class ZooEntry(NamedTuple):
    """A builder, the shape its net was made for, and one line about it."""

    builder: Callable[..., Net]
    standard_shape: tuple[int, int, int]
    line: str


_DIGIT, _SMALL_DIGIT, _COLOUR, _TEXT = (1, 32, 32), (1, 28, 28), (3, 32, 32), (1, 1, 80)
ZOO = {
    "mlpnet": ZooEntry(mlpnet, _DIGIT, "two hidden layers of 512, bias-free head (MAP)"),
    "lenet5": ZooEntry(lenet5, _DIGIT, "classic LeNet-5 with ReLU (MAP)"),
    "lenet_map": ZooEntry(lenet_map, _SMALL_DIGIT, "two convolutions, single bias-free head (MAP's code)"),
    "lenet_fedrepo": ZooEntry(
        lenet_fedrepo, _SMALL_DIGIT, "two convolutions, three linear layers (FedPHP's code)"
    ),
    "lenet_2d": ZooEntry(lenet_2d, _SMALL_DIGIT, "LeNet-5 with two features, for pictures of them (MAP)"),
    "lenet_bn": ZooEntry(
        lenet_bn, _SMALL_DIGIT, "very small LeNet with batch normalisation, for trying things"
    ),
    "tfcnn": ZooEntry(tfcnn, _COLOUR, "three convolutions, single bias-free head (FedPHP, MAP)"),
    "tfcnn_fc": ZooEntry(tfcnn_fc, _COLOUR, "tfcnn under two linear layers"),
    "tfcnn_tf": ZooEntry(
        tfcnn_tf, _COLOUR, "three convolutions without padding, two linear layers (TensorFlow)"
    ),
    "vgg8": ZooEntry(vgg8, _COLOUR, "five convolutions, single bias-free head (MAP)"),
    "vgg8_bn": ZooEntry(vgg8_bn, _COLOUR, "vgg8 with batch normalisation (MAP)"),
    "vgg11": ZooEntry(vgg11, _COLOUR, "eight convolutions, single bias-free head (FedPHP, MAP)"),
    "vgg11_fc": ZooEntry(vgg11_fc, _COLOUR, "vgg11 under three linear layers with dropout"),
    "vgg16_bn": ZooEntry(vgg16_bn, _COLOUR, "thirteen convolutions with batch normalisation (MAP's code)"),
    "resnet20": ZooEntry(resnet20, _COLOUR, "nine residual blocks, single bias-free head (MAP)"),
    "resnet56": ZooEntry(resnet56, _COLOUR, "27 residual blocks, single bias-free head (MAP)"),
    "resnet34": ZooEntry(resnet34, _COLOUR, "sixteen residual blocks, linear classifier (FedPer)"),
    "mobilenet_v1": ZooEntry(mobilenet_v1, _COLOUR, "thirteen depthwise-separable blocks (FedPer)"),
    "superfed_cnn": ZooEntry(
        superfed_cnn, _COLOUR, "four convolutions, linear head on 512 features (SuPerFed)"
    ),
    "persfl_cnn": ZooEntry(persfl_cnn, _COLOUR, "two convolutions, three linear layers (PersFL)"),
    "persfl_dnn": ZooEntry(persfl_dnn, _SMALL_DIGIT, "one hidden layer of 100 (PersFL)"),
    "leaf_cnn": ZooEntry(leaf_cnn, _SMALL_DIGIT, "two convolutions, hidden layer of 2048 (LEAF, FedPHP)"),
    "femnistnet": ZooEntry(femnistnet, _SMALL_DIGIT, "two convolutions, single bias-free head (MAP)"),
    "char_lstm": ZooEntry(char_lstm, _TEXT, "characters embedded, two LSTM layers of 256 (LEAF, FedPHP)"),
    "linear_base": ZooEntry(
        linear_base, _COLOUR, "one linear layer under the last units of another net (FedPer's ablation)"
    ),
}
