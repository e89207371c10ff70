"""A net of one's own, tried on made-up rows before a run relies on what the zoo promises."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from idiolect.errors import UserError
from idiolect.models.how import How
from idiolect.models.net import Net

__all__ = ["trial"]

ROWS = 4


def trial(net: Net, image_shape: tuple[int, int, int], n_classes: int) -> str:
    """Why the net cannot be run for many clients at once; nothing if it can.

    Raises:
        UserError: the net cannot be run at all: it fails, its logits have another shape, it draws noise of its
            own or writes into what it was given.
    """
    x = torch.linspace(-1, 1, ROWS * image_shape[0] * image_shape[1] * image_shape[2])
    x = x.reshape(ROWS, *image_shape).to(next(net.parameters()).dtype)
    if net.takes_tokens:
        x = torch.zeros_like(x).flatten(1).long()
    tensors = {name: t.detach().clone() for name, t in (*net.named_parameters(), *net.named_buffers())}
    logits = _tried(net, tensors, x, image_shape, n_classes)
    return _rows_that_mix(net, tensors, x, logits) or _cannot_vmap(net, tensors, x)


def _run(net: Net, tensors: dict[str, Tensor], x: Tensor, how: How) -> tuple[Tensor, Tensor]:
    found = functional_call(net, dict(tensors), (x, how), strict=True)
    return found.features, found.logits


def _tried(
    net: Net, tensors: dict[str, Tensor], x: Tensor, image_shape: tuple[int, int, int], n_classes: int
) -> Tensor:
    """Logits of the rows in training; a net that breaks what a forward pass promises is refused."""
    given, values = x.clone(), {name: tensor.clone() for name, tensor in tensors.items()}
    noise = torch.get_rng_state()
    try:
        features, logits = _run(net, tensors, given, How.plain(ROWS, net.n_units, train=True))
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
    """Padding is harmless if a row without mask changes nothing for the others."""
    how = How.plain(2 * ROWS, net.n_units, train=True)
    how = how._replace(mask=(how.key < ROWS).to(how.mask))
    beside = _run(net, tensors, torch.cat([x, 3 * x]), how)[1][:ROWS]
    same = torch.allclose(beside, logits, rtol=1e-3, atol=1e-4 * float(logits.detach().abs().max()))
    return "" if same else "its rows change one another, so that padding would change its numbers"


def _cannot_vmap(net: Net, tensors: dict[str, Tensor], x: Tensor) -> str:
    """Two clients at once, in training and in evaluation; an operation that torch would loop over counts."""

    def objective(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        return _run(net, tensors, x, How.plain(ROWS, net.n_units, train=True))[1].square().sum()

    def logits(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        return _run(net, tensors, x, How.plain(ROWS, net.n_units))[1]

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
