"""Which form of a layer runs: PyTorch's own, or one that batches over clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.overrides import TorchFunctionMode

from idiolect.layers import convolution, implicit
from idiolect.layers.pooling import max_pool

__all__ = ["BatchedLayers"]

Pair = tuple[int, int]


class BatchedLayers(TorchFunctionMode):
    """While this is entered, layers whose own form is slow under ``vmap`` are computed in a batched form.

    It acts on the functions that modules call, so that a network needs no change to run as a cohort.  What no
    batched form covers (groups, overlapping windows, ...) runs as it is.  Pooling goes before the ReLU and the bias
    that it follows, which then see a quarter of the values: max relu(x + b) = relu(max(x) + b), gradients alike.
    The mean over a whole map is taken as one, since its own form sets strides that ``vmap`` cannot follow.
    """

    def __init__(self) -> None:
        super().__init__()
        self._relus: dict[int, tuple[Tensor, Tensor]] = {}  # by identity of what came out: it, what went in
        self._convolutions: dict[
            int, tuple[Tensor, Tensor, Tensor | None, _Call]
        ] = {}  # it, without bias, bias

    def __torch_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is torch.conv2d:
            return self._convolved(*args, **kwargs)
        if function is F.max_pool2d and (side := _side(*args[1:], **kwargs)):
            return self._pooled(args[0], side)
        if function is F.adaptive_avg_pool2d and args[1:] in ((1,), ((1, 1),)):
            return args[0].mean((-2, -1), keepdim=True)
        out = function(*args, **kwargs)
        if function is F.relu and out is not args[0]:
            self._relus[id(out)] = out, args[0]
        return out

    def _convolved(
        self, x: Tensor, weight: Tensor, bias: Tensor | None = None, *rest: Any, **options: Any
    ) -> Tensor:
        call = _Call(x, weight, *rest, **options)
        y = call.run()
        out = y if bias is None else y + bias[:, None, None]
        self._convolutions[id(out)] = out, y, bias, call
        return out

    def _pooled(self, x: Tensor, side: int) -> Tensor:
        _, before = self._relus.get(id(x), (x, x))
        _, inner, bias, call = self._convolutions.get(id(before), (before, before, None, None))
        y = call.run_pooled(side) if call and call.can_pool(side) else max_pool(inner, side)
        y = y if bias is None else y + bias[:, None, None]
        return y if before is x else torch.relu(y)


class _Call(NamedTuple):
    """A call of ``torch.conv2d`` without its bias."""

    x: Tensor
    weight: Tensor
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1

    @property
    def _pairs(self) -> tuple[Pair, Pair, Pair]:
        return _pair(self.stride), _pair(self.padding), _pair(self.dilation)

    @property
    def _is_implicit(self) -> bool:
        usual = self.groups == 1 and not isinstance(self.padding, str) and self.x.dim() == 4
        return usual and implicit.serves(self.x, self.weight, *self._pairs)

    def run(self) -> Tensor:
        if self.groups != 1 or isinstance(self.padding, str) or self.x.dim() != 4:
            return torch.conv2d(self.x, self.weight, None, *self[2:])
        if self._is_implicit:
            return implicit.convolve(self.x, self.weight, _pair(self.padding)[0])
        return convolution.convolve(self.x, self.weight, *self._pairs)

    def can_pool(self, side: int) -> bool:
        """Whether convolving and pooling is one kernel; while a step is traced alone, else it was convolved before."""
        return self._is_implicit and side in (2, 4) and get_proxy_mode() is not None

    def run_pooled(self, side: int) -> Tensor:
        return implicit.convolve_and_pool(self.x, self.weight, _pair(self.padding)[0], side)


def _side(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> int:
    """The side of square windows that do not overlap, or 0 where pooling is anything else."""
    side = _pair(kernel_size)
    even = side[0] == side[1] and _pair(stride or kernel_size) == side
    usual = _pair(padding) == (0, 0) and _pair(dilation) == (1, 1) and not ceil_mode and not return_indices
    return side[0] if even and usual else 0


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else tuple(value)
