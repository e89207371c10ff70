"""Which form of a layer runs: PyTorch's own, or one that batches over clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from idiolect.layers import convolution, implicit
from idiolect.layers.pooling import max_pool

__all__ = ["BatchedLayers"]


class BatchedLayers(TorchFunctionMode):
    """While this is entered, layers whose own form is slow under ``vmap`` are computed in a batched form.

    It acts on the functions that modules call, so that a network needs no change to run as a cohort.  What no
    batched form covers (groups, overlapping windows, ...) runs as it is.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        form = FORMS.get(function, function)
        return form(*args, **(kwargs or {}))


def _conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    if groups != 1 or isinstance(padding, str) or x.dim() != 4:
        return torch.conv2d(x, weight, bias, stride, padding, dilation, groups)
    stride, padding, dilation = _pair(stride), _pair(padding), _pair(dilation)
    if implicit.serves(x, weight, stride, padding, dilation):
        return implicit.convolve(x, weight, bias, padding[0])
    return convolution.convolve(x, weight, bias, stride, padding, dilation)


def _max_pool2d(x: Tensor, kernel_size: Any, stride: Any = None, *rest: Any, **options: Any) -> Any:
    side, step = _pair(kernel_size), _pair(stride or kernel_size)
    plain = not any(rest) and not any(v for k, v in options.items() if k != "dilation") and options.get("dilation", 1) in (1, (1, 1))
    if plain and side == step and side[0] == side[1]:
        return max_pool(x, side[0])
    return F.max_pool2d(x, kernel_size, stride, *rest, **options)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


FORMS: dict[Callable[..., Any], Callable[..., Any]] = {torch.conv2d: _conv2d, F.max_pool2d: _max_pool2d, torch.max_pool2d: _max_pool2d}
