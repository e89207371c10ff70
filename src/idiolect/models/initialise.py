"""Initialisation schemes: a net's first values as a function of a seed.

    default   weights and biases U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as torch does
    map       convolutions N(0, 2/fan_out) (He et al., ICCV 2015), linear weights N(0, 0.01^2), biases 0
    xavier    weights N(0, 2/(fan_in + fan_out)) (Glorot and Bengio, AISTATS 2010), biases 0

`map` is the scheme of MAP's released code (Li et al., IEEE TKDE 2024), `xavier` that of SuPerFed's (Hahn et
al., KDD 2022).  Normalisation always starts at weight 1, bias 0, running mean 0 and running variance 1.

All numbers are drawn in float32 by a generator of our own on the CPU and then copied, layer by layer in the
net's order: one seed gives one start on every device and in every precision, and torch's global random state
is neither read nor moved.  Under one seed `default` draws the numbers that `torch.manual_seed` and
construction would draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from idiolect.errors import unknown_name
from idiolect.models.batchnorm import MaskedBatchNorm
from idiolect.models.net import Net

__all__ = ["SCHEMES", "default", "initialise", "map_", "xavier"]

Weighted = nn.Conv2d | nn.Linear
Draw = Callable[[Weighted, Generator], tuple[Tensor, Tensor]]


def default(net: Net, seed: int) -> None:
    """The framework's default."""
    _fill(net, seed, _default_layer)


def map_(net: Net, seed: int) -> None:
    """The scheme of MAP's released code."""
    _fill(net, seed, _map_layer)


def xavier(net: Net, seed: int) -> None:
    """The scheme of SuPerFed's released code."""
    _fill(net, seed, _xavier_layer)


SCHEMES: dict[str, Callable[[Net, int], None]] = {"default": default, "map": map_, "xavier": xavier}


def initialise(net: Net, scheme: str, seed: int) -> None:
    """Overwrites every parameter and buffer of the net by a scheme's values for this seed."""
    if scheme not in SCHEMES:
        raise unknown_name("initialisation", scheme, SCHEMES)
    SCHEMES[scheme](net, seed)


@torch.no_grad()
def _fill(net: Net, seed: int, draw: Draw) -> None:
    """Gives each layer its values in order; a layer that no scheme knows is refused, not left as it is."""
    generator = Generator(device="cpu").manual_seed(seed)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            weight, bias = draw(layer, generator)
            layer.weight.copy_(weight)
            if layer.bias is not None:
                layer.bias.copy_(bias)
        elif isinstance(layer, MaskedBatchNorm):
            for start, tensors in (
                (1.0, (layer.weight, layer.running_var)),
                (0.0, (layer.bias, layer.running_mean)),
            ):
                for tensor in tensors:
                    tensor.fill_(start)
        elif next(layer.parameters(recurse=False), None) is not None:
            raise TypeError(f"no initialisation scheme covers {type(layer).__name__}")


def _default_layer(layer: Weighted, generator: Generator) -> tuple[Tensor, Tensor]:
    weight, bias = _empty(layer)
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    if layer.bias is not None:
        bound = 1 / math.sqrt(weight[0].numel())
        nn.init.uniform_(bias, -bound, bound, generator=generator)
    return weight, bias


def _map_layer(layer: Weighted, generator: Generator) -> tuple[Tensor, Tensor]:
    weight, bias = _empty(layer)
    if isinstance(layer, nn.Linear):
        nn.init.normal_(weight, 0.0, 0.01, generator=generator)
    else:
        nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu", generator=generator)
    return weight, bias


def _xavier_layer(layer: Weighted, generator: Generator) -> tuple[Tensor, Tensor]:
    weight, bias = _empty(layer)
    nn.init.xavier_normal_(weight, generator=generator)
    return weight, bias


def _empty(layer: Weighted) -> tuple[Tensor, Tensor]:
    """Room for a layer's weight, and zeros for its bias, in float32 on the CPU."""
    weight = torch.empty(layer.weight.shape, dtype=torch.float32, device="cpu")
    return weight, torch.zeros(weight.shape[0], dtype=torch.float32, device="cpu")
