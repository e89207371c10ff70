"""The catalogue of models by name, from the zoo and registered ones: `build("mlpnet(hidden=256)", ...)`.

A model's options are the keyword arguments of its builder beyond the shape of the data, with their defaults;
an unknown option, a value of another kind and rows that the net cannot take are refused in a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from idiolect.errors import UserError, unknown_name
from idiolect.models.feedforward_builder import ImageDoesNotFit
from idiolect.models.from_module import InputShapes
from idiolect.models.initialise import initialise
from idiolect.models.net import Net
from idiolect.models.registered_models import REGISTERED, build_registered, is_option
from idiolect.models.zoo import ZOO
from idiolect.option_parsing import OptionSchema, parse_call
from idiolect.own_code import load_plugins

__all__ = ["ModelDescription", "build", "describe", "names", "options", "outline", "resolved", "suggested"]

FLATTENING = ("mlpnet", "persfl_dnn")  # nets of the zoo that take rows of any shape
SMALL_ROW = 256  # numbers in a row, such as a line of a table, for which a narrow net is suggested


class ModelDescription(NamedTuple):
    """One row of the catalogue: parameters are counted for the shape (C, H, W) and 10 classes."""

    name: str
    line: str
    image_shape: tuple[int, int, int]
    parameters: int


def names() -> tuple[str, ...]:
    """Returns the names of all models: the zoo's, then the registered ones."""
    load_plugins()
    return (*ZOO, *REGISTERED)


def options(name: str) -> dict[str, bool | int | float | str]:
    """Returns the options of a model with their defaults."""
    return _schema(name).defaults


def describe() -> tuple[ModelDescription, ...]:
    """Describes every model of the zoo."""
    rows = []
    for name, entry in ZOO.items():
        net = _empty(name, {}, entry.standard_shape, 10)
        count = sum(parameter.numel() for parameter in net.parameters())
        rows.append(ModelDescription(name, entry.line, entry.standard_shape, count))
    return tuple(rows)


def build(
    spec: str,
    input_shape: tuple[int, ...],
    outputs: int,
    initialisation: str = "default",
    seed: int = 0,
    inputs: InputShapes = (),
) -> Net:
    """Builds and initialises a net by name; torch's global random state is not changed.

    A registered model is initialised by its builder, whose draws follow the seed; a scheme other than
    `default` then overwrites the layers it knows, except for frozen ones.

    Args:
        spec: a name, or a call with options: "mlpnet(hidden=256)".
        input_shape: of one row: (C, H, W) of an image, (F,) of F numbers or tokens, or any other.
        outputs: K >= 1.
        initialisation: a scheme of `idiolect.models.initialise`.
        seed: of the initialisation.
        inputs: name and shape of each input, where a row holds several.
    """
    name, given = _checked(spec)
    if min(*input_shape, outputs) < 1:
        raise UserError(f"model {name} needs positive sizes, not rows of {input_shape} and {outputs} outputs")
    if name in REGISTERED:
        net = build_registered(name, given, input_shape, outputs, seed, inputs)
    else:
        net = _empty(name, given, input_shape, outputs).to_empty(device="cpu")
    if name in ZOO or initialisation != "default":
        initialise(net, initialisation, seed, known_only=name in REGISTERED)
    return net


def suggested(
    input_shape: tuple[int, ...], task: str = "classification", vocabulary: int | None = None
) -> str:
    """Returns the network of the zoo for rows of a shape, where the user names none.

    Images that fit get ``lenet_map``, tokens ``char_lstm``, and other rows ``mlpnet``, narrow where rows are short.

    Args:
        task: what is learned; the same networks serve all tasks.
        vocabulary: number of tokens, for rows of tokens.

    >>> suggested((3, 32, 32)), suggested((20,)), suggested((80,), "next_token", 81)
    ('lenet_map', 'mlpnet(hidden=64, head_bias=True)', 'char_lstm')
    """
    if vocabulary is not None:
        return (
            "char_lstm"
            if vocabulary == options("char_lstm")["vocabulary"]
            else f"char_lstm(vocabulary={vocabulary})"
        )
    try:
        if len(input_shape) == 3:
            outline("lenet_map", input_shape, 2)
            return "lenet_map"
    except UserError:
        pass
    width = 64 if math.prod(input_shape) <= SMALL_ROW else options("mlpnet")["hidden"]
    return f"mlpnet(hidden={width}, head_bias=True)"


def resolved(spec: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and all options of a model as it is written, defaults included.

    >>> resolved("persfl_dnn")
    ('persfl_dnn', {'hidden': 100})
    """
    name, given = _checked(spec)
    return name, _schema(name).with_defaults(given)


def outline(spec: str, input_shape: tuple[int, ...], outputs: int) -> Net:
    """Builds a net of the zoo without values, on the meta device."""
    return _empty(*_checked(spec), input_shape, outputs)


def _checked(spec: str) -> tuple[str, dict[str, Any]]:
    """Returns name and given options of a model; an unknown option and a wrong value are refused."""
    name, given = parse_call(spec)
    schema = _schema(name)
    schema.refuse_unknown(given)
    for key, value in given.items():
        default = schema.parameters[key].default
        if not schema.fits(key, value):
            kind = type(default).__name__
            raise UserError(f"model {name}: {key}={value!r} should be a value of type {kind}")
        if type(default) is int and value < 1 and value != default:
            raise UserError(f"model {name}: {key}={value!r} should be at least 1")
    return name, given


def _schema(name: str) -> OptionSchema:
    """Returns the options of a model: the builder's arguments beyond the data's shape, each of its default's type."""
    found = OptionSchema.of(
        f"model {name}",
        _builder(name),
        is_option,
        _listed,
    )
    kinds = {key: p.replace(annotation=type(p.default)) for key, p in found.parameters.items()}
    return replace(found, parameters=kinds)


def _listed(defaults: Mapping[str, Any]) -> str:
    return f"its options: {', '.join(defaults)}" if defaults else "it has no options"


def _empty(name: str, given: dict[str, Any], input_shape: tuple[int, ...], outputs: int) -> Net:
    """Builds a net of the zoo without values: on the meta device this costs nothing and draws no random numbers."""
    channels, height, width = image = _as_image(name, input_shape)
    try:
        with torch.device("meta"):
            net: Net = ZOO[name].builder(
                in_channels=channels, image_size=(height, width), n_classes=outputs, **given
            )
    except ImageDoesNotFit as reason:
        raise UserError(f"model {name} cannot take images of {height}x{width}: {reason}") from None
    if image != tuple(input_shape) and not net.takes_tokens and name not in FLATTENING:
        net.observe(row_shape=image)
    return net


def _as_image(name: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Returns the shape (C, H, W) in which a net of the zoo is told of rows; flat ones are images of one line."""
    if len(input_shape) == 3:
        return input_shape
    if len(input_shape) == 1 or name in FLATTENING:
        return 1, 1, math.prod(input_shape)
    shape = "x".join(map(str, input_shape))
    raise UserError(
        f"model {name} takes images (channels, height, width) and these rows are {shape}; use "
        f"{' or '.join(FLATTENING)}, which flatten them, or a model of your own"
    )


def _builder(name: str) -> Callable[..., nn.Module]:
    if name not in ZOO and name not in REGISTERED and name not in names():
        raise unknown_name("model", name, names())
    return REGISTERED[name] if name in REGISTERED else ZOO[name].builder
