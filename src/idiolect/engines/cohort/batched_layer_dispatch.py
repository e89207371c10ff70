"""Batched layers: calls of PyTorch's layers are redirected to forms that batch over clients, where there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.overrides import TorchFunctionMode

from idiolect.engines.cohort import convolution
from idiolect.engines.cohort.pooling import max_pool

__all__ = ["BatchedLayers"]

Pair = tuple[int, int]


class BatchedLayers(TorchFunctionMode):
    """While this mode is entered, layers whose own form is slow under ``vmap`` run in a batched form.

    It acts on the functions that modules call, so that a network needs no change to run as a cohort.  What no
    batched form covers (groups, overlapping windows, ...) runs as it is.  Pooling is computed before the ReLU and the
    bias that it directly follows, which then see a quarter of the values: max relu(x + b) = relu(max(x) + b), with the
    same gradients.  Average pooling of a whole map is computed as a mean, since its own form sets strides that ``vmap``
    cannot follow.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: _Convolved | _Rectified | None = None  # the call before this one, where it matters
        self._copies: dict[int, Tensor] = {}  # by identity, copies where the network asked for a view

    def __torch_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is torch.conv2d:
            self._last = _convolved(*args, **kwargs)
            return self._last.out
        if function is F.max_pool2d and (side := _side(*args[1:], **kwargs)):
            y, self._last = _pooled(args[0], side, self._last), None
            return y
        if function is F.adaptive_avg_pool2d and args[1:] in ((1,), ((1, 1),)):
            function, args = Tensor.mean, (args[0], (-2, -1), True)
        out = self._viewed(*args) if function is Tensor.view else function(*args, **kwargs)
        if args and (out is None or out is args[0]) and id(args[0]) in self._copies:
            raise RuntimeError("batched layers cannot follow a network that changes a view in place")
        if function is F.relu:
            before = self._last if isinstance(self._last, _Convolved) and self._last.out is args[0] else None
            self._last = _Rectified(out, args[0], before)
        elif out is None or isinstance(out, Tensor):
            self._last = None
        return out

    def _viewed(self, x: Tensor, *size: Any) -> Tensor:
        """Views x, or copies it where it cannot be viewed, since channels lie last in the batched forms."""
        try:
            return x.view(*size)
        except (RuntimeError, ValueError):
            out = x.reshape(*size)
            self._copies[id(out)] = out
            return out


class _Convolved(NamedTuple):
    """A convolution: its result, the same before a bias that is added after it, that bias, and the call."""

    out: Tensor
    y: Tensor
    bias: Tensor | None
    call: _Conv2dCall


class _Rectified(NamedTuple):
    """A ReLU: its result, its input, and the convolution that the input came from."""

    out: Tensor
    x: Tensor
    before: _Convolved | None


def _convolved(*args: Any, **options: Any) -> _Convolved:
    call = _Conv2dCall(*args, **options)
    if call.has_kernel:
        y = convolution.convolve_by_kernel(call.x, call.weight, call.bias, _pair(call.padding)[0])
        return _Convolved(y, y, None, call)
    y = call.run()
    return _Convolved(y if call.bias is None else y + call.bias[:, None, None], y, call.bias, call)


def _pooled(x: Tensor, side: int, last: _Convolved | _Rectified | None) -> Tensor:
    """Pools x before the last operation, where the result is the same, else after it."""
    if last is None or last.out is not x:
        return max_pool(x, side)
    if isinstance(last, _Rectified):
        return torch.relu(_pooled(last.x, side, last.before))
    y = last.call.run_pooled(side) if last.call.can_pool(side) else max_pool(last.y, side)
    return y if last.bias is None else y + last.bias[:, None, None]


class _Conv2dCall(NamedTuple):
    """A call of ``torch.conv2d``."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1

    @property
    def _pairs(self) -> tuple[Pair, Pair, Pair]:
        return _pair(self.stride), _pair(self.padding), _pair(self.dilation)

    @property
    def has_kernel(self) -> bool:
        usual = self.groups == 1 and not isinstance(self.padding, str) and self.x.dim() == 4
        return usual and convolution.kernel_serves(self.x, self.weight, *self._pairs)

    def run(self) -> Tensor:
        """Convolves without the bias."""
        if self.groups != 1 or isinstance(self.padding, str) or self.x.dim() != 4:
            return torch.conv2d(self.x, self.weight, None, *self[3:])
        return convolution.convolve_by_slices(self.x, self.weight, *self._pairs)

    def can_pool(self, side: int) -> bool:
        """Whether convolution and pooling are one kernel: only in a trace, where the earlier convolution is dropped."""
        return self.has_kernel and side in (2, 4) and get_proxy_mode() is not None

    def run_pooled(self, side: int) -> Tensor:
        return convolution.convolve_and_pool(self.x, self.weight, self.bias, _pair(self.padding)[0], side)


def _side(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> int:
    """Returns the side of square windows that do not overlap, or 0 where pooling is anything else."""
    side = _pair(kernel_size)
    even = side[0] == side[1] and _pair(stride or kernel_size) == side
    usual = _pair(padding) == (0, 0) and _pair(dilation) == (1, 1) and not ceil_mode and not return_indices
    return side[0] if even and usual else 0


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else tuple(value)
