"""Models of one's own, made known by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch

from idiolect.errors import UserError
from idiolect.models.net import Net
from idiolect.models.zoo import ZOO
from idiolect.options import parse_call

__all__ = ["OWN", "SHAPE", "build_own", "is_own", "register_model"]

OWN: dict[str, Callable[..., Net]] = {}
SHAPE = ("in_channels", "image_size", "n_classes")


def register_model(name: str, builder: Callable[..., Net]) -> None:
    """Makes a model of one's own known by name, as if it were in the package.

    A finished run is known by the model's name, its options and what it computes: a change of a layer, its
    settings or the forward pass makes another run.  A change of the initial values alone does not; take another
    name or another folder then.

    Args:
        name: lower_snake, not taken yet.
        builder: takes the keyword arguments `in_channels`, `image_size` (height, width) and `n_classes`, and
            returns a `Net`, for example by `from_module`; further keyword arguments, with defaults of type
            bool, int, float or str, are the model's options.

    >>> from idiolect.models import build, from_module
    >>> from torch import nn
    >>> def tiny(*, in_channels, image_size, n_classes, width=8):
    ...     inputs = in_channels * image_size[0] * image_size[1]
    ...     body = nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.ReLU())
    ...     return from_module(body, nn.Linear(width, n_classes))
    >>> register_model("tiny", tiny)
    >>> build("tiny(width=4)", (1, 28, 28), 10).n_units
    2
    >>> del OWN["tiny"]
    """
    if not (isinstance(name, str) and name.isidentifier() and name == name.lower()):
        raise UserError(f"{name!r} cannot name a model; use small letters, digits and underscores")
    if name in ZOO or name in OWN:
        raise UserError(f"{name} is a model already; choose another name")
    if not callable(builder):
        raise UserError(f"model {name} needs a function that builds it, not {builder!r}")
    parameters = inspect.signature(builder).parameters
    if missing := [key for key in SHAPE if key not in parameters]:
        raise UserError(f"the builder of model {name} must take the argument {missing[0]}")
    for key, parameter in parameters.items():
        if key not in SHAPE and not isinstance(parameter.default, bool | int | float | str):
            raise UserError(
                f"model {name}: option {key} of its builder needs a default of type bool, int, float or str"
            )
    OWN[name] = builder


def is_own(spec: str) -> bool:
    """Whether a model is a registered one, of which nothing is known until it is tried."""
    return parse_call(spec)[0] in OWN


def build_own(name: str, build: Callable[[], Net], seed: int) -> Net:
    """The builder's net; what it draws follows the seed, and torch's global random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        net = build()
    if not isinstance(net, Net):
        raise UserError(
            f"the builder of model {name} returned {type(net).__name__}, not a Net; make one by from_module"
        )
    return net.cpu()
