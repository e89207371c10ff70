"""The zoo by name: `build("vgg8", ...)`, `build("mlpnet(hidden=256)", ...)`.

A model's options are the keyword arguments of its builder beyond the shape of the data, with their defaults;
an unknown option, a value of another kind and an image the net cannot take are refused in a sentence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple

import torch

from idiolect.calls import parse_call
from idiolect.errors import UserError, unknown_name
from idiolect.models.initialise import initialise
from idiolect.models.lenet import lenet5, lenet_bn, lenet_fedrepo, lenet_map
from idiolect.models.linear_base import linear_base
from idiolect.models.mlpnet import mlpnet
from idiolect.models.net import Net
from idiolect.models.persfl import persfl_cnn, persfl_dnn
from idiolect.models.stack import ImageDoesNotFit
from idiolect.models.superfed_cnn import superfed_cnn
from idiolect.models.tfcnn import tfcnn, tfcnn_fc, tfcnn_tf
from idiolect.models.vgg import vgg8, vgg8_bn, vgg11, vgg11_fc

__all__ = ["Description", "build", "describe", "names", "options"]


class Description(NamedTuple):
    """One row of the catalogue: parameters are counted for the shape (C, H, W) and 10 classes."""

    name: str
    line: str
    image_shape: tuple[int, int, int]
    parameters: int


class _Entry(NamedTuple):
    builder: Callable[..., Net]
    standard_shape: tuple[int, int, int]
    line: str


_DIGIT, _SMALL_DIGIT, _COLOUR = (1, 32, 32), (1, 28, 28), (3, 32, 32)
_ZOO = {
    "mlpnet": _Entry(mlpnet, _DIGIT, "two hidden layers of 512, bias-free head (MAP)"),
    "lenet5": _Entry(lenet5, _DIGIT, "classic LeNet-5 with ReLU (MAP)"),
    "lenet_map": _Entry(lenet_map, _SMALL_DIGIT, "two convolutions, single bias-free head (MAP's code)"),
    "lenet_fedrepo": _Entry(
        lenet_fedrepo, _SMALL_DIGIT, "two convolutions, three linear layers (FedPHP's code)"
    ),
    "lenet_bn": _Entry(
        lenet_bn, _SMALL_DIGIT, "very small LeNet with batch normalisation, for trying things"
    ),
    "tfcnn": _Entry(tfcnn, _COLOUR, "three convolutions, single bias-free head (FedPHP, MAP)"),
    "tfcnn_fc": _Entry(tfcnn_fc, _COLOUR, "tfcnn under two linear layers"),
    "tfcnn_tf": _Entry(tfcnn_tf, _COLOUR, "the tutorial's own tfcnn, without padding"),
    "vgg8": _Entry(vgg8, _COLOUR, "five convolutions, single bias-free head (MAP)"),
    "vgg8_bn": _Entry(vgg8_bn, _COLOUR, "vgg8 with batch normalisation (MAP)"),
    "vgg11": _Entry(vgg11, _COLOUR, "eight convolutions, single bias-free head (FedPHP, MAP)"),
    "vgg11_fc": _Entry(vgg11_fc, _COLOUR, "vgg11 under three linear layers with dropout"),
    "superfed_cnn": _Entry(
        superfed_cnn, _COLOUR, "four convolutions, linear head on 512 features (SuPerFed)"
    ),
    "persfl_cnn": _Entry(persfl_cnn, _COLOUR, "two convolutions, three linear layers (PersFL)"),
    "persfl_dnn": _Entry(persfl_dnn, _SMALL_DIGIT, "one hidden layer of 100 (PersFL)"),
    "linear_base": _Entry(
        linear_base, _COLOUR, "one linear layer as base, linear classifier (FedPer's ablation)"
    ),
}
_SHAPE = ("in_channels", "image_size", "n_classes")


def names() -> tuple[str, ...]:
    """Names of all models."""
    return tuple(_ZOO)


def options(name: str) -> dict[str, bool | int | float]:
    """The options of a model and their defaults."""
    if name not in _ZOO:
        raise unknown_name("model", name, _ZOO)
    parameters = inspect.signature(_ZOO[name].builder).parameters
    return {key: parameter.default for key, parameter in parameters.items() if key not in _SHAPE}


def describe() -> tuple[Description, ...]:
    """A row for every model."""
    rows = []
    for name, entry in _ZOO.items():
        net = _empty(name, {}, entry.standard_shape, 10)
        count = sum(parameter.numel() for parameter in net.parameters())
        rows.append(Description(name, entry.line, entry.standard_shape, count))
    return tuple(rows)


def build(
    spec: str,
    image_shape: tuple[int, int, int],
    n_classes: int,
    initialisation: str = "default",
    seed: int = 0,
) -> Net:
    """A net by name, initialised; torch's global random state is not touched.

    Args:
        spec: a name, or a call with options: "mlpnet(hidden=256)".
        image_shape: (C, H, W).
        n_classes: K >= 1.
        initialisation: a scheme of `idiolect.models.initialise`.
        seed: of the initialisation.
    """
    name, given = parse_call(spec)
    known = options(name)
    for key, value in given.items():
        _check(name, key, value, known)
    net = _empty(name, given, image_shape, n_classes).to_empty(device="cpu")
    initialise(net, initialisation, seed)
    return net


def _empty(name: str, given: dict[str, object], image_shape: tuple[int, int, int], n_classes: int) -> Net:
    """The net without values: on the meta device construction costs nothing and draws no random numbers."""
    channels, height, width = image_shape
    if min(channels, height, width, n_classes) < 1:
        raise UserError(
            f"model {name} needs positive sizes, not images {image_shape} and {n_classes} classes"
        )
    try:
        with torch.device("meta"):
            return _ZOO[name].builder(
                in_channels=channels, image_size=(height, width), n_classes=n_classes, **given
            )
    except ImageDoesNotFit as reason:
        raise UserError(f"model {name} cannot take images of {height}x{width}: {reason}") from None


def _check(name: str, key: str, value: object, known: dict[str, bool | int | float]) -> None:
    """Refuses an option that the model has not, and a value of another kind than the default's."""
    if key not in known:
        there_are = f"its options: {', '.join(known)}" if known else "it has no options"
        raise UserError(f"model {name} has no option {key!r}; {there_are}")
    kind = type(known[key])
    number_for_float = kind is float and type(value) is int
    if type(value) is not kind and not number_for_float:
        raise UserError(f"model {name}: {key}={value!r} should be a value of type {kind.__name__}")
    if kind is int and isinstance(value, int) and value < 1:
        raise UserError(f"model {name}: {key}={value!r} should be at least 1")
