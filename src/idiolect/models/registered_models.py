"""Models that users register by name, and how their builders are called.

A builder says what it wants to know of the data by the names of its arguments, and returns a module or a `Net`.  The
values that it gives its tensors are those that a run starts from.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from idiolect.errors import UserError
from idiolect.models.from_module import InputShapes, SeveralInputs, copy_of, from_module
from idiolect.models.model_check import find_head, materialise, observe
from idiolect.models.net import Net
from idiolect.models.zoo import ZOO
from idiolect.option_parsing import parse_call

__all__ = [
    "REGISTERED",
    "build_registered",
    "is_option",
    "is_registered",
    "name_of_model",
    "register_model",
]

Builder = Callable[..., nn.Module]
REGISTERED: dict[str, Builder] = {}
SHAPE = ("input_shape", "outputs", "in_channels", "image_size", "n_classes")  # what a builder may ask for
OPTIONS = (bool, int, float, str)


def register_model(name: str, builder: Builder) -> None:
    """Registers a model by name, as if it were in the package.

    A finished run is identified by the model's name, its options, what it computes and the initial values that do not
    follow the seed, such as pretrained ones: a change of a layer, its settings, the forward pass or these values makes
    another run.  A change of how other values are drawn does not; choose another name or another folder then.

    Args:
        name: lower_snake, not taken yet.
        builder: a function or class that takes any of the keyword arguments `input_shape` (of one row), `outputs` (K),
            `in_channels`, `image_size` (height, width) and `n_classes` (K), and returns a torch module that maps rows
            [B, ...] to logits [B, K], or a `Net` of `from_module`.  Further arguments with defaults of type bool, int,
            float or str are the model's options.  It is called anew for each initialisation, with torch's random
            numbers seeded.

    >>> from idiolect.models import build
    >>> from torch import nn
    >>> def tiny(input_shape, outputs, width=8):
    ...     return nn.Sequential(nn.Flatten(), nn.LazyLinear(width), nn.ReLU(), nn.Linear(width, outputs))
    >>> register_model("tiny", tiny)
    >>> net = build("tiny(width=4)", (1, 28, 28), 10)
    >>> net.n_units, net.linear_head
    (2, True)
    >>> del REGISTERED["tiny"]
    """
    if not (isinstance(name, str) and name.isidentifier() and name == name.lower()):
        raise UserError(f"{name!r} cannot name a model; use small letters, digits and underscores")
    if name in ZOO or name in REGISTERED:
        raise UserError(f"{name} is a model already; choose another name")
    REGISTERED[name] = _checked_builder(name, builder)


def _checked_builder(name: str, builder: Any) -> Builder:
    if not callable(builder) or isinstance(builder, nn.Module):
        raise UserError(f"model {name} needs a function that builds it, not {builder!r}")
    try:
        parameters = _parameters(builder)
    except (TypeError, ValueError):  # as of some functions that are written in C
        raise UserError(f"model {name} needs a function of Python that builds it, not {builder!r}") from None
    for key, parameter in parameters.items():
        optional = parameter.default is not Parameter.empty or parameter.kind in VARIABLE
        if key not in SHAPE and not optional:
            raise UserError(
                f"model {name}: option {key} of its builder needs a default of type bool, int, float or str"
            )
    made: Builder = builder
    return made


VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def _parameters(builder: Builder) -> Mapping[str, Parameter]:
    return inspect.signature(builder).parameters


def is_option(parameter: Parameter) -> bool:
    """Whether a builder's argument is an option of the model."""
    return (
        parameter.name not in SHAPE
        and parameter.kind not in VARIABLE
        and isinstance(parameter.default, OPTIONS)
    )


def is_registered(spec: str) -> bool:
    """Whether a model is a registered one, which must be checked before a run."""
    return parse_call(spec)[0] in REGISTERED


def name_of_model(model: str | nn.Module | Builder) -> str:
    """Returns the name of a model; a module or a builder is registered under a name made of its own.

    A module's values are the initial values of every run, whatever the seed; its name holds a digest of them.  A
    builder takes the place of an earlier one of its name.
    """
    if isinstance(model, str):
        return model
    if isinstance(model, nn.Module):
        whole = copy_of([model])[0]
        name = f"{_snake(type(model).__name__)}_{_values_digest(whole)}"
        REGISTERED[name] = lambda: copy_of([whole])[0]
        return name
    if not callable(model):
        raise UserError(f"model must be a name, a torch module or a function that builds one, got {model!r}")
    name = _snake(getattr(model, "__name__", type(model).__name__))
    REGISTERED[name] = _checked_builder(name, model)
    return name


def _snake(name: str) -> str:
    """Returns a name in small letters that no model of the zoo has: MyNet becomes my_net."""
    found = re.sub(r"\W", "", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower()
    return found if found.isidentifier() and found not in ZOO and found != "lambda" else f"own_{found}"


def _values_digest(module: nn.Module) -> str:
    found = hashlib.sha256(repr(module).encode())
    for name, tensor in module.state_dict().items():
        if is_lazy(tensor):  # its values are drawn when the model is built
            found.update(name.encode())
            continue
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:8]


def build_registered(
    name: str,
    given: Mapping[str, Any],
    input_shape: tuple[int, ...],
    outputs: int,
    seed: int,
    inputs: InputShapes = (),
) -> Net:
    """Returns the builder's net; its draws follow the seed, and torch's global random state is not changed."""
    builder = REGISTERED[name]
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            made = builder(**_shape_arguments(name, builder, input_shape, outputs), **given)
            made = made.cpu() if isinstance(made, nn.Module) else made
            if isinstance(made, nn.Module) and not isinstance(made, Net):
                materialise(SeveralInputs(made, inputs) if inputs else made, input_shape)
        except UserError:
            raise
        except Exception as error:
            reason = str(error).strip().split("\n")[0]
            raise UserError(f"the builder of model {name} fails: {type(error).__name__} {reason}") from error
    if not isinstance(made, nn.Module):
        raise UserError(
            f"the builder of model {name} returned {type(made).__name__}, not a torch module or a Net"
        )
    if not isinstance(made, Net):
        whole = SeveralInputs(made, inputs) if inputs else made
        head = find_head(whole, input_shape)
        made = from_module(made, head.removeprefix("module.") if inputs and head else head, inputs)
    observe(made, input_shape)
    return made


def _shape_arguments(
    name: str, builder: Builder, input_shape: tuple[int, ...], outputs: int
) -> dict[str, Any]:
    """Returns those facts about the data that the builder has arguments for."""
    parameters = _parameters(builder)
    takes_all = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    wanted = [key for key in SHAPE if key in parameters or takes_all]
    facts: dict[str, Any] = {"input_shape": input_shape, "outputs": outputs, "n_classes": outputs}
    if len(input_shape) <= 3:
        channels, *size = (1,) * (3 - len(input_shape)) + tuple(input_shape)
        facts |= {"in_channels": channels, "image_size": tuple(size)}
    if missing := [key for key in wanted if key not in facts and key in parameters]:
        shape = "x".join(map(str, input_shape))
        raise UserError(
            f"the builder of model {name} takes {missing[0]}, and rows of {shape} are no images; let it take "
            "input_shape"
        )
    return {key: facts[key] for key in wanted if key in facts}
