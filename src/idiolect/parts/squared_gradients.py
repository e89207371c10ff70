"""Sums of squared per-example gradients, computed without per-example gradients where the layer allows it.

linear       y_i = W a_i + b              sum_i (dl_i/dW)^2 = sum_i d_i^2 (a_i^2)^T,    d_i = dl_i/dy_i
convolution  y_i(p) = W a_i(p) + b        sum_i (sum_p d_i(p) a_i(p)^T)^2,              a_i(p) the patch at position p
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap
from torch.overrides import TorchFunctionMode

from idiolect.core import Batch, Flat, Measure, Model, Slot, View
from idiolect.core.trees import tree_leaves, zeros_like

__all__ = ["squared_gradients"]

ROWS_AT_ONCE = 32


def squared_gradients() -> Measure:
    """Measures the sum over examples of the squared gradient of the loss (of classes -log p), and their number."""

    def init(model: Model, view: View) -> Slot:
        return {"sum": zeros_like(model.params), "rows": torch.zeros_like(view.facts.samples)}

    def add(sums: Slot, model: Model, batch: Batch, view: View) -> Slot:
        found = _by_layers(model, batch, view)
        rest = {name: p for name, p in model.params.items() if name not in found}
        found |= _by_examples(rest, model, batch, view) if rest else {}
        total = {name: before + found[name] for name, before in sums["sum"].items()}
        return {"sum": total, "rows": sums["rows"] + batch.mask.sum()}

    return Measure(init, add)


class _Call(NamedTuple):
    """A linear layer or a convolution at work; ``stride`` and ``padding`` are those of a convolution."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: tuple[int, int] | None = None
    padding: tuple[int, int] = (0, 0)


class _Watch(TorchFunctionMode):
    """Records every use of a parameter and every call of a layer, and adds a shift to a layer's output.

    Args:
        shifts: by the name of a layer's weight; added to the layer's output if the shapes agree.
    """

    def __init__(self, params: Flat, shifts: Flat | None = None) -> None:
        super().__init__()
        self.names = {id(p): name for name, p in params.items()}
        self.shifts = shifts or {}
        self.uses: Counter[str | None] = Counter()
        self.calls: dict[str, _Call] = {}
        self.results: Flat = {}

    def __torch_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        options = kwargs or {}
        result = function(*args, **options)
        if getattr(function, "__name__", "") == "__get__" and not isinstance(result, Tensor):
            return result  # a shape or a type, not a transpose
        given = [self.names.get(id(value)) for value in tree_leaves([args, options])]
        self.uses.update(name for name in given if name is not None)
        call = _read(function, *args, **options)
        weight = None if call is None else self.names.get(id(call.weight))
        if call is None or weight is None:
            return result
        self.calls[weight], self.results[weight] = call, result
        shift = self.shifts.get(weight)
        return result + shift if shift is not None and shift.shape == result.shape else result

    def layers(self, n_rows: int) -> dict[str, str | None]:
        """Returns the bias by weight of the calls with one row per example whose parameters are used nowhere else."""
        return {
            weight: self.names[id(call.bias)] if call.bias is not None else None
            for weight, call in self.calls.items()
            if call.input.shape[0] == n_rows and self.uses[weight] == 1 and self._plain_bias(call)
        }

    def _plain_bias(self, call: _Call) -> bool:
        used_once = self.uses[self.names.get(id(call.bias))] == 1
        return call.bias is None or (used_once and call.bias.shape == call.weight.shape[:1])


def _read(function: Callable[..., Any], *args: Any, **options: Any) -> _Call | None:
    """Returns the call if the layer is one that is handled here: linear, or a 2d convolution."""
    if function is F.linear:
        call = _Call(*args, **options)
        return call if call.input.dim() == call.weight.dim() == 2 else None
    if function is torch.conv2d:
        return _convolution(*args, **options)
    return None


def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> _Call | None:
    steps, margins, gaps = ((v, v) if isinstance(v, int) else tuple(v) for v in (stride, padding, dilation))
    if groups != 1 or gaps != (1, 1) or len(steps) != 2 or len(margins) != 2 or input.dim() != 4:
        return None  # a padding may be a word
    return _Call(input, weight, bias, steps, margins)


def _by_layers(model: Model, batch: Batch, view: View) -> Flat:
    """Returns the sums of squares for the parameters of linear layers and convolutions."""
    n_rows = batch.mask.shape[0]

    def shifted(shifts: Flat) -> tuple[Tensor, Flat]:
        with _Watch(model.params, shifts) as watch:
            out, _ = view.task.forward(model.params, model.buffers, batch, False)
        loss = view.task.criterion({"model": model.params}, batch, out)  # a mean over the rows
        layers = watch.layers(n_rows)  # without layers that see one row for all examples, such as a constant
        return loss * batch.mask.sum(), {name: watch.calls[name].input for name in shifts if name in layers}

    one = Batch(batch.x[:1], batch.y[:1], batch.mask[:1], batch.key[:1], {})
    with _Watch(model.params) as seen:  # finds the layers and the shapes of their outputs
        view.task.forward(model.params, model.buffers, one, False)
    layers = seen.layers(1)
    if not layers:
        return {}
    shifts = {name: y.new_zeros(n_rows, *y.shape[1:]) for name, y in seen.results.items() if name in layers}
    by_result, inputs = grad(shifted, has_aux=True)(shifts)
    found: Flat = {}
    for weight, x in inputs.items():
        found[weight], of_bias = _squares(seen.calls[weight]._replace(input=x), by_result[weight])
        bias = layers[weight]
        if bias is not None:
            found[bias] = of_bias
    return found


def _squares(call: _Call, d: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sums over rows of squared gradients of weight and bias, from the gradient ``d`` of the output."""
    if call.stride is None:
        return (d**2).T @ call.input**2, (d**2).sum(0)
    (down, across), (high, wide) = call.stride, call.padding
    x = F.pad(call.input, (wide, wide, high, high))
    total = torch.zeros_like(call.weight)
    for some, by_some in zip(torch.split(x, ROWS_AT_ONCE), torch.split(d, ROWS_AT_ONCE), strict=True):
        patches = some.unfold(2, call.weight.shape[2], down).unfold(3, call.weight.shape[3], across)
        each = torch.einsum("bopq,bipqkl->boikl", by_some, patches)
        total = total + (each**2).sum(0)
    return total, (d.sum((2, 3)) ** 2).sum(0)


def _by_examples(params: Flat, model: Model, batch: Batch, view: View) -> Flat:
    """Returns the sums of squares from per-example gradients, which works for any parameter."""

    def loss(params: Flat, x: Tensor, y: Tensor, key: Tensor) -> Tensor:
        one = Batch(x[None], y[None], torch.ones_like(batch.mask[:1]), key[None], {})
        whole = {**model.params, **params}
        out, _ = view.task.forward(whole, model.buffers, one, False)
        return view.task.criterion({"model": whole}, one, out)

    each = vmap(grad(loss), in_dims=(None, 0, 0, 0), chunk_size=ROWS_AT_ONCE)(
        params, batch.x, batch.y, batch.key
    )
    return {name: torch.tensordot(batch.mask, g**2, 1) for name, g in each.items()}
