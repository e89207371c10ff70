"""Models that users register by name, and the check that a registered model can run."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from idiolect.errors import UserError
from idiolect.models.batch_context import BatchContext
from idiolect.models.net import Net
from idiolect.models.zoo import ZOO
from idiolect.option_parsing import parse_call

__all__ = ["REGISTERED", "SHAPE", "build_registered", "check_model", "is_registered", "register_model"]

REGISTERED: dict[str, Callable[..., Net]] = {}
SHAPE = ("in_channels", "image_size", "n_classes")  # arguments of every builder
ROWS = 4  # of the batch that a model is checked on


def register_model(name: str, builder: Callable[..., Net]) -> None:
    """Registers a model by name, as if it were in the package.

    A finished run is identified by the model's name, its options and what it computes: a change of a layer, its
    settings or the forward pass makes another run.  A change of the initial values alone does not; choose
    another name or another folder then.

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
    >>> del REGISTERED["tiny"]
    """
    if not (isinstance(name, str) and name.isidentifier() and name == name.lower()):
        raise UserError(f"{name!r} cannot name a model; use small letters, digits and underscores")
    if name in ZOO or name in REGISTERED:
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
    REGISTERED[name] = builder


def is_registered(spec: str) -> bool:
    """Whether a model is a registered one, which must be checked before a run."""
    return parse_call(spec)[0] in REGISTERED


def build_registered(name: str, build: Callable[[], Net], seed: int) -> Net:
    """Returns the builder's net; its draws follow the seed, and torch's global random state is not changed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        net = build()
    if not isinstance(net, Net):
        raise UserError(
            f"the builder of model {name} returned {type(net).__name__}, not a Net; make one by from_module"
        )
    return net.cpu()


def check_model(net: Net, image_shape: tuple[int, int, int], n_classes: int) -> str:
    """Runs a net on made-up rows, and returns why it cannot be run for many clients at once; "" if it can.

    Raises:
        UserError: the net cannot be run at all: it fails, its logits have another shape, it draws random numbers
            or writes into its inputs.
    """
    x = torch.linspace(-1, 1, ROWS * image_shape[0] * image_shape[1] * image_shape[2])
    x = x.reshape(ROWS, *image_shape).to(next(net.parameters()).dtype)
    if net.takes_tokens:
        x = torch.zeros_like(x).flatten(1).long()
    tensors = {name: t.detach().clone() for name, t in (*net.named_parameters(), *net.named_buffers())}
    logits = _tried(net, tensors, x, image_shape, n_classes)
    return _rows_that_mix(net, tensors, x, logits) or _cannot_vmap(net, tensors, x)


def _run(net: Net, tensors: dict[str, Tensor], x: Tensor, context: BatchContext) -> tuple[Tensor, Tensor]:
    found = functional_call(net, dict(tensors), (x, context), strict=True)
    return found.features, found.logits


def _tried(
    net: Net, tensors: dict[str, Tensor], x: Tensor, image_shape: tuple[int, int, int], n_classes: int
) -> Tensor:
    """Returns the logits of the rows in training; a net that breaks the rules of a forward pass is refused."""
    given, values = x.clone(), {name: tensor.clone() for name, tensor in tensors.items()}
    noise = torch.get_rng_state()
    try:
        features, logits = _run(net, tensors, given, BatchContext.plain(ROWS, net.n_units, train=True))
    except UserError:
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        shape = "x".join(map(str, image_shape))
        raise UserError(f"the model fails on inputs of {shape}: {type(error).__name__} {reason}") from error
    if not torch.equal(torch.get_rng_state(), noise):
        torch.set_rng_state(noise)
        raise UserError("the model draws random numbers in forward; draw them by nn.Dropout layers only")
    if not torch.equal(given, x) or any(not torch.equal(tensors[n], v) for n, v in values.items()):
        raise UserError("the model writes into its input or its tensors in place; let it make new ones")
    weights = [p for p in net.units[-1].parameters() if p.dim() > 1]
    wanted = [(ROWS, n_classes), features.shape[1], n_classes]
    if [tuple(logits.shape), weights[0].shape[1], weights[-1].shape[0]] != wanted:
        raise UserError(
            f"the head of the model should make {n_classes} logits of {features.shape[1]} features, its first "
            f"and last weight made for these; the logits of {ROWS} rows are {list(logits.shape)}"
        )
    return logits


def _rows_that_mix(net: Net, tensors: dict[str, Tensor], x: Tensor, logits: Tensor) -> str:
    """Returns a reason if masked rows change the logits of the others, so that padding would too."""
    context = BatchContext.plain(2 * ROWS, net.n_units, train=True)
    context = context._replace(mask=(context.key < ROWS).to(context.mask))
    beside = _run(net, tensors, torch.cat([x, 3 * x]), context)[1][:ROWS]
    same = torch.allclose(beside, logits, rtol=1e-3, atol=1e-4 * float(logits.detach().abs().max()))
    return "" if same else "its rows change one another, so that padding would change its numbers"


def _cannot_vmap(net: Net, tensors: dict[str, Tensor], x: Tensor) -> str:
    """Returns a reason if vmap fails for two clients, or falls back to a loop, in training or evaluation."""

    def objective(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        return _run(net, tensors, x, BatchContext.plain(ROWS, net.n_units, train=True))[1].square().sum()

    def logits(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        return _run(net, tensors, x, BatchContext.plain(ROWS, net.n_units))[1]

    twice = {name: torch.stack([tensor, tensor]) for name, tensor in tensors.items()}
    both = torch.stack([x, x])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message=".*batching rule")
            vmap(grad(objective))(twice, both)
            with torch.no_grad():
                vmap(logits)(twice, both)
    except Exception as error:
        return str(error).strip().split("\n")[0].split(". ")[0]
    return ""
