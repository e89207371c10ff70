"""What running a user's model on made-up rows shows: its head, its sizes, its noise, and whether a run can use it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.lazy import LazyModuleMixin

from idiolect.errors import UserError
from idiolect.models.batch_context import BatchContext
from idiolect.models.from_module import OwnUnit, passing_on, whole_numbers
from idiolect.models.masked_batchnorm import MaskedBatchNorm
from idiolect.models.net import Net, Outputs

__all__ = ["check_model", "find_head", "materialise", "observe"]

ROWS = 4  # of the batch that a model is checked on


def materialise(module: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Runs a module with lazy layers once, which gives them their shapes and draws their values."""
    if any(isinstance(layer, LazyModuleMixin) for layer in module.modules()):
        with _in_eval_mode(module):
            _first_that_runs(module, input_shape)


def find_head(module: nn.Module, input_shape: tuple[int, ...]) -> str | None:
    """Returns the name of the linear layer whose output is the module's; None if there is no such layer.

    The layer must be called once, with one vector for each row, and the module without it must return these vectors.
    """
    calls: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def watch(path: str) -> Any:
        return lambda layer, inputs, output: calls.setdefault(path, []).append((inputs[0], output))

    linear = [(path, layer) for path, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    hooks = [layer.register_forward_hook(watch(path)) for path, layer in linear if path]
    try:
        with _in_eval_mode(module), torch.random.fork_rng(devices=[]):
            output = _first_that_runs(module, input_shape)
    except Exception:  # the error is reported by the check
        return None
    finally:
        for hook in hooks:
            hook.remove()
    for path, found in calls.items():
        features, made = found[0]
        if len(found) == 1 and made is output and features.dim() == 2:
            return path if _returns_without(module, path, features, input_shape) else None
    return None


def _returns_without(module: nn.Module, path: str, features: Tensor, input_shape: tuple[int, ...]) -> bool:
    """Whether a module without a layer returns the features, as it does unless it reads more of it than settings."""
    parent, _, name = path.rpartition(".")
    holder = module.get_submodule(parent)._modules
    layer = module.get_submodule(path)
    holder[name] = passing_on(layer)
    try:
        with _in_eval_mode(module), torch.random.fork_rng(devices=[]):
            found = _first_that_runs(module, input_shape)
        return found.shape == features.shape and torch.allclose(found, features, equal_nan=True)
    except Exception:  # it cannot run without the layer
        return False
    finally:
        holder[name] = layer


def _first_that_runs(module: nn.Module, input_shape: tuple[int, ...]) -> Any:
    """Returns the output for made-up rows: tokens first, if there is an embedding, then numbers."""
    hooks = [table.register_forward_pre_hook(whole_numbers) for table in _tables(module)]
    try:
        for tokens in _readings(module):
            try:
                return module(_rows(module, input_shape, tokens))
            except Exception:
                if not tokens:
                    raise
        raise AssertionError("the last reading is numbers")
    finally:
        for hook in hooks:
            hook.remove()


def observe(net: Net, input_shape: tuple[int, ...]) -> None:
    """Runs a user's net in training and in eval mode and notes what shows; a net that fails is left to the check."""
    for tokens in _readings(net):
        x, tensors = _rows(net, input_shape, tokens), _tensors(net)
        before = dict(tensors)
        try:
            found, draws = _watched(net, tensors, x, train=True)
            draws_always = _watched(net, _tensors(net), x, train=False)[1]
            n_features, n_outputs = int(found.features.shape[1]), int(found.logits.shape[1])
        except Exception:
            continue
        net.observe(
            takes_tokens=tokens,
            n_features=n_features if net.has_head else 0,
            n_outputs=n_outputs,
            own_buffers=_moved(net, before, tensors),
            still_statistics=frozenset(n for n in _running_statistics(net) if tensors[n] is before[n]),
            draws_noise=(draws_always, draws),
        )
        return


def _watched(net: Net, tensors: dict[str, Tensor], x: Tensor, train: bool) -> tuple[Outputs, bool]:
    """Returns the outputs, and whether random numbers were drawn; torch's global random state is not changed."""
    context = BatchContext.plain(ROWS, net.n_units, train=train)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        noise = torch.get_rng_state()
        found: Outputs = functional_call(net, tensors, (x, context))
        return found, not torch.equal(torch.get_rng_state(), noise)


def _moved(net: Net, before: dict[str, Tensor], after: dict[str, Tensor]) -> frozenset[str]:
    """Returns the names of buffers that were assigned or written into, other than running statistics."""
    statistics = _running_statistics(net)
    return frozenset(
        name
        for name, buffer in net.named_buffers()
        if name not in statistics
        and buffer.is_floating_point()
        and (after[name] is not before[name] or after[name]._version > 0)
    )


def _running_statistics(net: Net) -> set[str]:
    layers = [path for path, layer in net.named_modules() if isinstance(layer, MaskedBatchNorm)]
    return {f"{path}.{name}" for path in layers for name in ("running_mean", "running_var")}


def check_model(net: Net, input_shape: tuple[int, ...], outputs: int) -> str:
    """Runs a net on made-up rows, and returns why it cannot be run for many clients at once; "" if it can.

    Raises:
        UserError: the net cannot be run at all: it fails, its logits have another shape, it draws random numbers
            or writes into its input or its tensors.
    """
    x = _rows(net, input_shape, net.takes_tokens)
    tensors = _tensors(net)
    logits = _tried(net, tensors, x, input_shape, outputs)
    if any(net.observed.draws_noise):
        return "it draws random numbers of its own"
    if net.observed.own_buffers:
        return f"its buffer {min(net.observed.own_buffers)} is written in place"
    if any(isinstance(unit, OwnUnit) and unit.guesses_axis for unit in net.units):
        return "a dropout layer gets its rows along the second axis"
    return _rows_that_mix(net, tensors, x, logits) or _cannot_vmap(net, tensors, x)


def _run(net: Net, tensors: dict[str, Tensor], x: Tensor, context: BatchContext) -> tuple[Tensor, Tensor]:
    found = functional_call(net, dict(tensors), (x, context), strict=True)
    return found.features, found.logits


def _tensors(net: Net) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in (*net.named_parameters(), *net.named_buffers())}


def _readings(module: nn.Module) -> tuple[bool, ...]:
    """Returns how rows may be read, as tokens or not, in the order in which that is tried."""
    return (True, False) if _tables(module) else (False,)


def _tables(module: nn.Module) -> list[nn.Embedding | nn.EmbeddingBag]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Embedding | nn.EmbeddingBag)]


def _rows(module: nn.Module, input_shape: tuple[int, ...], tokens: bool) -> Tensor:
    """Returns made-up rows [B, ...]: tokens that every table holds; numbers not below 0 where some may be tokens."""
    if tokens:
        known = min(table.num_embeddings for table in _tables(module))
        return (torch.arange(ROWS * torch.Size(input_shape).numel()) % known).reshape(ROWS, -1)
    low = 0.0 if len(_readings(module)) > 1 else -1.0
    x = torch.linspace(low, 0.999, ROWS * torch.Size(input_shape).numel()).reshape(ROWS, *input_shape)
    return x.to(next((p.dtype for p in module.parameters() if p.is_floating_point()), x.dtype))


@contextmanager
def _in_eval_mode(module: nn.Module) -> Iterator[None]:
    """Evaluates without gradients; every layer is in its own mode again afterwards."""
    modes = {layer: layer.training for layer in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode


def _tried(
    net: Net, tensors: dict[str, Tensor], x: Tensor, input_shape: tuple[int, ...], outputs: int
) -> Tensor:
    """Returns the logits of the rows in training; a net that breaks the rules of a forward pass is refused."""
    given, values = x.clone(), {name: tensor.clone() for name, tensor in tensors.items()}
    after, noise = dict(tensors), torch.get_rng_state()
    shape = "x".join(map(str, input_shape))
    try:
        context = BatchContext.plain(ROWS, net.n_units, train=True)
        features, logits, _ = functional_call(net, after, (given, context), strict=True)
    except UserError:
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"the model fails on inputs of {shape}: {type(error).__name__} {reason}") from error
    if not isinstance(logits, Tensor):
        raise UserError(
            f"the model returns a {type(logits).__name__}, not one tensor of logits; let it return the logits alone"
        )
    if not torch.equal(torch.get_rng_state(), noise):
        torch.set_rng_state(noise)
        raise UserError("the model draws random numbers in forward; draw them by nn.Dropout layers only")
    _refuse_writes(net, {"its input": x, **values}, {"its input": given, **after})
    if not net.has_head and tuple(logits.shape) != (ROWS, outputs):
        raise UserError(
            f"the model should make {outputs} logits for each row; those of {ROWS} rows are {list(logits.shape)}"
        )
    wanted = [(ROWS, outputs), (features.shape[1], outputs)]
    if net.has_head and [tuple(logits.shape), net.head_sizes] != wanted:
        raise UserError(
            f"the head of the model should make {outputs} logits of {features.shape[1]} features, its first "
            f"and last weight made for these; the logits of {ROWS} rows are {list(logits.shape)}"
        )
    return logits


def _refuse_writes(net: Net, before: dict[str, Tensor], after: dict[str, Tensor]) -> None:
    """Refuses a net that has changed what no client can follow: its input, a parameter or a buffer of whole numbers."""
    buffers = {name for name, buffer in net.named_buffers() if not buffer.is_floating_point()}
    moving = net.observed.own_buffers | _running_statistics(net)
    for name in before.keys() - moving:
        if torch.equal(after[name], before[name]):
            continue
        if name in buffers:
            raise UserError(
                f"the model changes its buffer {name} of whole numbers when it runs, and such buffers stay as they "
                "are; make it floating-point"
            )
        raise UserError("the model writes into its input or its tensors in place; let it make new ones")


def _rows_that_mix(net: Net, tensors: dict[str, Tensor], x: Tensor, logits: Tensor) -> str:
    """Returns a reason if masked rows change the logits of the others, so that padding would too."""
    context = BatchContext.plain(2 * ROWS, net.n_units, train=True)
    context = context._replace(mask=(context.key < ROWS).to(context.mask))
    other = x / 2 if x.is_floating_point() else torch.zeros_like(x)
    beside = _run(net, tensors, torch.cat([x, other]), context)[1][:ROWS]
    same = torch.allclose(beside, logits, rtol=1e-3, atol=1e-4 * float(logits.detach().abs().max()))
    return "" if same else "its rows change one another, so that padding would change its numbers"


def _cannot_vmap(net: Net, tensors: dict[str, Tensor], x: Tensor) -> str:
    """Returns a reason if vmap fails for two clients, or falls back to a loop, in training or evaluation."""
    held = {n: t for n, t in tensors.items() if n not in net.constants()}
    fixed = {n: t for n, t in tensors.items() if n not in held}

    def objective(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        context = BatchContext.plain(ROWS, net.n_units, train=True)
        return _run(net, {**tensors, **fixed}, x, context)[1].square().sum()

    def logits(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        return _run(net, {**tensors, **fixed}, x, BatchContext.plain(ROWS, net.n_units))[1]

    twice = {name: torch.stack([tensor, tensor]) for name, tensor in held.items()}
    both = torch.stack([x, x])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message=".*batching rule")
            vmap(grad(objective))(twice, both)
            with torch.no_grad():
                vmap(logits)(twice, both)
    except Exception as error:
        operation = re.search(r"aten::\w+", str(error))
        if operation:
            return f"torch has no form of its operation {operation[0]} for many clients"
        if ".item()" in str(error) or "data-dependent" in str(error):
            return "its forward pass depends on the values that it computes"
        return str(error).strip().split("\n")[0].split(". ")[0]
    return ""
