"""Sums over examples of squared gradients, without the gradient of any single example where a layer allows it.

linear       y_i = W a_i + b              sum_i (dl_i/dW)^2 = sum_i d_i^2 (a_i^2)^T,    d_i = dl_i/dy_i
convolution  y_i(p) = W a_i(p) + b        sum_i (sum_p d_i(p) a_i(p)^T)^2,              a_i(p) the patch at position p
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap
from torch.overrides import TorchFunctionMode

from idiolect.core import Batch, Flat, Measure, Model, Tree, View
from idiolect.core.trees import zeros_like

__all__ = ["squared_gradients"]

ROWS_AT_ONCE = 32


def squared_gradients() -> Measure:
    """Sum over the examples of the squared gradient of -log p(y | x), and their number."""

    def init(model: Model, view: View) -> Tree:
        return {"sum": zeros_like(model.params), "rows": torch.zeros_like(view.facts.samples)}

    def add(sums: Tree, model: Model, batch: Batch, view: View) -> Tree:
        found = _by_layers(model, batch, view)
        rest = {name: p for name, p in model.params.items() if name not in found}
        found |= _by_examples(rest, model, batch, view) if rest else {}
        total = {name: before + found[name] for name, before in sums["sum"].items()}
        return {"sum": total, "rows": sums["rows"] + batch.mask.sum()}

    return Measure(init, add)


class _Call(NamedTuple):
    """A linear layer or a convolution at work; ``stride`` and ``padding`` are those of a convolution."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: tuple[int, int] | None = None
    padding: tuple[int, int] = (0, 0)


class _Watch(TorchFunctionMode):
    """Notes every call of a layer, shifts what comes out of it, and which parameters serve in any other way.

    Args:
        shifts: one for each call, in their order; none while their shapes are not known.
    """

    def __init__(self, params: Flat, shifts: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self.names = {id(p): name for name, p in params.items()}
        self.shifts = shifts
        self.calls: list[_Call] = []
        self.results: list[Tensor] = []
        self.otherwise: set[str] = set()

    def __torch_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") == "__get__":  # a shape or a type
            return result
        call = _read(function, *args, **(kwargs or {}))
        if call is None or id(call.weight) not in self.names:
            given = [*args, *(kwargs or {}).values()]
            self.otherwise |= {self.names[id(value)] for value in given if id(value) in self.names}
            return result
        self.calls.append(call)
        self.results.append(result)
        return result + self.shifts[len(self.calls) - 1] if self.shifts else result

    @property
    def layers(self) -> list[tuple[int, str, str | None]]:
        """Calls with one row for an example whose parameters do nothing else: number, names of weight and bias."""
        named = [
            (i, self.names[id(c.weight)], None if c.bias is None else self.names.get(id(c.bias), ""))
            for i, c in enumerate(self.calls)
        ]
        used = Counter(name for _, *pair in named for name in pair if name is not None)
        used.update(dict.fromkeys((*self.otherwise, ""), 2))
        return [
            (i, weight, bias)
            for i, weight, bias in named
            if self.calls[i].x.shape[0] == 1 and used[weight] == 1 and (bias is None or used[bias] == 1)
        ]


def _read(function: Callable[..., Any], *args: Any, **options: Any) -> _Call | None:
    """A call of a layer that is known here."""
    if function is F.linear and args[0].dim() == 2:
        return _Call(*args, **options)
    if function is torch.conv2d:
        return _convolution(*args, **options)
    return None


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> _Call | None:
    pairs = [(value, value) if isinstance(value, int) else value for value in (stride, padding, dilation)]
    if isinstance(padding, str) or tuple(pairs[2]) != (1, 1) or groups != 1:
        return None
    return _Call(x, weight, bias, tuple(pairs[0]), tuple(pairs[1]))


def _by_layers(model: Model, batch: Batch, view: View) -> Flat:
    """By parameter: sums of squares of linear layers and convolutions."""

    def shifted(shifts: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        with _Watch(model.params, shifts) as watch:
            out, _ = view.task.forward(model.params, model.buffers, batch, False)
        loss = view.task.criterion({"model": model.params}, batch, out)  # a mean over the rows
        return loss * batch.mask.sum(), [call.x for call in watch.calls]

    one = Batch(batch.x[:1], batch.y[:1], batch.mask[:1], batch.key[:1], {})
    with _Watch(model.params) as seen:  # which layers there are, and the shapes of what comes out of them
        view.task.forward(model.params, model.buffers, one, False)
    if not seen.layers:
        return {}
    n_rows = batch.mask.shape[0]
    shifts = [y.new_zeros(n_rows * y.shape[0], *y.shape[1:]) for y in seen.results]
    by_result, inputs = grad(shifted, has_aux=True)(shifts)
    found: Flat = {}
    for i, weight, bias in seen.layers:
        call = seen.calls[i]._replace(x=inputs[i])
        found[weight], of_bias = _squares(call, by_result[i])
        if bias is not None:
            found[bias] = of_bias
    return found


def _squares(call: _Call, d: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over the rows of the squared gradients by weight and bias, from those by what came out, ``d``."""
    if call.stride is None:
        return (d**2).T @ call.x**2, (d**2).sum(0)
    (down, across), (high, wide) = call.stride, call.padding
    x = F.pad(call.x, (wide, wide, high, high))
    total = torch.zeros_like(call.weight)
    for some, by_some in zip(x.split(ROWS_AT_ONCE), d.split(ROWS_AT_ONCE), strict=True):
        patches = some.unfold(2, call.weight.shape[2], down).unfold(3, call.weight.shape[3], across)
        each = torch.einsum("bopq,bipqkl->boikl", by_some, patches)
        total = total + (each**2).sum(0)
    return total, (d.sum((2, 3)) ** 2).sum(0)


def _by_examples(params: Flat, model: Model, batch: Batch, view: View) -> Flat:
    """By parameter: sums of squares of single examples' gradients, for whatever a parameter does."""

    def negative_log_likelihood(params: Flat, x: Tensor, y: Tensor, key: Tensor) -> Tensor:
        one = Batch(x[None], y[None], torch.ones_like(batch.mask[:1]), key[None], {})
        whole = {**model.params, **params}
        out, _ = view.task.forward(whole, model.buffers, one, False)
        return view.task.criterion({"model": whole}, one, out)

    each = vmap(grad(negative_log_likelihood), in_dims=(None, 0, 0, 0), chunk_size=ROWS_AT_ONCE)(
        params, batch.x, batch.y, batch.key
    )
    return {name: torch.tensordot(batch.mask, g**2, 1) for name, g in each.items()}
