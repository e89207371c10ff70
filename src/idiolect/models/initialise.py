"""Initialisation schemes: a net's first values as a function of a seed.

    default   weights and biases U(-1/sqrt(fan_in), 1/sqrt(fan_in)), as torch does
    map       convolutions N(0, 2/fan_out) (He et al., ICCV 2015), linear weights N(0, 0.01^2), biases 0
    xavier    weights N(0, 2/(fan_in + fan_out)) (Glorot and Bengio, AISTATS 2010), biases 0

`map` is the scheme of MAP's released code (Li et al., IEEE TKDE 2024), `xavier` that of SuPerFed's (Hahn et
al., KDD 2022).  Under every scheme, normalisation starts at weight 1, bias 0, running mean 0 and running
variance 1, an embedding at N(0, 1) and all tensors of an LSTM layer of H units at U(-1/sqrt(H), 1/sqrt(H)).

All numbers are drawn in float32 by a generator on the CPU and then copied, layer by layer in the
net's order: one seed gives one start on every device and in every precision, and torch's global random state
is neither read nor changed.  Under one seed `default` draws the numbers that `torch.manual_seed` and
construction would draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from idiolect.errors import unknown_name
from idiolect.models.lstm import LSTM
from idiolect.models.masked_batchnorm import MaskedBatchNorm
from idiolect.models.net import Net

__all__ = ["SCHEMES", "initialise"]

Weighted = nn.Conv2d | nn.Linear
Draw = Callable[[Weighted, Generator], tuple[Tensor, Tensor]]


@torch.no_grad()
def initialise(net: Net, scheme: str, seed: int, known_only: bool = False) -> None:
    """Overwrites the parameters and buffers of the net, layer by layer, by a scheme's values for this seed.

    Args:
        known_only: a layer that no scheme knows, or that is frozen, is left as it is; otherwise it is refused.
    """
    if scheme not in SCHEMES:
        raise unknown_name("initialisation", scheme, SCHEMES)
    generator = Generator(device="cpu").manual_seed(seed)
    for layer in net.modules():
        if known_only and _is_left_alone(layer):
            continue
        if isinstance(layer, nn.Conv2d | nn.Linear):
            weight, bias = SCHEMES[scheme](layer, generator)
            layer.weight.copy_(weight)
            if layer.bias is not None:
                layer.bias.copy_(bias)
        elif isinstance(layer, nn.Embedding | LSTM):
            for parameter in layer.parameters():
                parameter.copy_(_recurrent(layer, parameter.shape, generator))
        elif isinstance(layer, MaskedBatchNorm):
            for start, tensors in (
                (1.0, (layer.weight, layer.running_var)),
                (0.0, (layer.bias, layer.running_mean)),
            ):
                for tensor in tensors:
                    tensor.fill_(start)
        elif not known_only and next(layer.parameters(recurse=False), None) is not None:
            raise TypeError(f"no initialisation scheme covers {type(layer).__name__}")


def _is_left_alone(layer: nn.Module) -> bool:
    """Whether a layer of a user's is frozen, or computes its weight of other parameters."""
    own = list(layer.parameters(recurse=False))
    computed = "weight" in vars(layer) or is_parametrized(layer)
    return computed or not own or not all(p.requires_grad for p in own)


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


def _recurrent(layer: nn.Embedding | LSTM, shape: torch.Size, generator: Generator) -> Tensor:
    """Draws a tensor of an embedding or an LSTM layer, which every scheme leaves to the framework's default."""
    drawn = torch.empty(shape, dtype=torch.float32, device="cpu")
    if isinstance(layer, nn.Embedding):
        return nn.init.normal_(drawn, generator=generator)
    bound = 1 / math.sqrt(layer.n_hidden)
    return nn.init.uniform_(drawn, -bound, bound, generator=generator)


SCHEMES: dict[str, Draw] = {"default": _default_layer, "map": _map_layer, "xavier": _xavier_layer}


def _empty(layer: Weighted) -> tuple[Tensor, Tensor]:
    """Allocates a layer's weight, and zeros for its bias, in float32 on the CPU."""
    weight = torch.empty(layer.weight.shape, dtype=torch.float32, device="cpu")
    return weight, torch.zeros(weight.shape[0], dtype=torch.float32, device="cpu")
