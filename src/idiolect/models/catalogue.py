"""The catalogue of models by name, from the zoo and registered ones: `build("mlpnet(hidden=256)", ...)`.

A model's options are the keyword arguments of its builder beyond the shape of the data, with their defaults;
an unknown option, a value of another kind and an image the net cannot take are refused in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from idiolect.errors import UserError, unknown_name
from idiolect.models.feedforward_builder import ImageDoesNotFit
from idiolect.models.initialise import initialise
from idiolect.models.net import Net
from idiolect.models.registered_models import REGISTERED, SHAPE, build_registered
from idiolect.models.zoo import ZOO
from idiolect.option_parsing import OptionSchema, parse_call

__all__ = ["ModelDescription", "build", "describe", "names", "options", "outline", "resolved"]


class ModelDescription(NamedTuple):
    """One row of the catalogue: parameters are counted for the shape (C, H, W) and 10 classes."""

    name: str
    line: str
    image_shape: tuple[int, int, int]
    parameters: int


def names() -> tuple[str, ...]:
    """Returns the names of all models: the zoo's, then the registered ones."""
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
    image_shape: tuple[int, int, int],
    n_classes: int,
    initialisation: str = "default",
    seed: int = 0,
) -> Net:
    """Builds and initialises a net by name; torch's global random state is not changed.

    A registered model is initialised by its builder, whose draws follow the seed; a scheme other than
    `default` then overwrites the layers it knows.

    Args:
        spec: a name, or a call with options: "mlpnet(hidden=256)".
        image_shape: (C, H, W).
        n_classes: K >= 1.
        initialisation: a scheme of `idiolect.models.initialise`.
        seed: of the initialisation.
    """
    name, given = _checked(spec)
    if name in REGISTERED:
        net = build_registered(name, lambda: _call(name, given, image_shape, n_classes), seed)
    else:
        net = _empty(name, given, image_shape, n_classes).to_empty(device="cpu")
    if name in ZOO or initialisation != "default":
        initialise(net, initialisation, seed, known_only=name in REGISTERED)
    return net


def resolved(spec: str) -> tuple[str, dict[str, Any]]:
    """Returns the name and all options of a model as it is written, defaults included.

    >>> resolved("persfl_dnn")
    ('persfl_dnn', {'hidden': 100})
    """
    name, given = _checked(spec)
    return name, _schema(name).with_defaults(given)


def outline(spec: str, image_shape: tuple[int, int, int], n_classes: int) -> Net:
    """Builds a net of the zoo without values, on the meta device."""
    return _empty(*_checked(spec), image_shape, n_classes)


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
    found = OptionSchema.of(f"model {name}", _builder(name), lambda p: p.name not in SHAPE, _listed)
    kinds = {key: p.replace(annotation=type(p.default)) for key, p in found.parameters.items()}
    return replace(found, parameters=kinds)


def _listed(defaults: Mapping[str, Any]) -> str:
    return f"its options: {', '.join(defaults)}" if defaults else "it has no options"


def _empty(name: str, given: dict[str, Any], image_shape: tuple[int, int, int], n_classes: int) -> Net:
    """Builds a net without values: on the meta device this costs nothing and draws no random numbers."""
    with torch.device("meta"):
        return _call(name, given, image_shape, n_classes)


def _call(name: str, given: dict[str, Any], image_shape: tuple[int, int, int], n_classes: int) -> Net:
    channels, height, width = image_shape
    if min(channels, height, width, n_classes) < 1:
        raise UserError(
            f"model {name} needs positive sizes, not images {image_shape} and {n_classes} classes"
        )
    shape = {"in_channels": channels, "image_size": (height, width), "n_classes": n_classes}
    try:
        return _builder(name)(**shape, **given)
    except ImageDoesNotFit as reason:
        raise UserError(f"model {name} cannot take images of {height}x{width}: {reason}") from None


def _builder(name: str) -> Callable[..., Net]:
    if name not in names():
        raise unknown_name("model", name, names())
    return REGISTERED[name] if name in REGISTERED else ZOO[name].builder
