"""Multi-head attention in plain tensor operations with planned dropout, so that it can be batched over clients.

    attention(Q, K, V) = dropout(softmax(Q K^T / sqrt(d) + mask)) V          for each of H heads, with d = E / H

Vaswani et al., NeurIPS 2017, equation (1) and section 3.2.2: torch.nn.MultiheadAttention, with its parameters.  Torch's
own has a path for evaluation that cannot be vmapped, and draws its dropout from a generator.
"""

from __future__ import annotations

import math
from itertools import repeat

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from idiolect.errors import UserError
from idiolect.models.dropout import PlannedDropout

__all__ = ["PlannedAttention"]


class PlannedAttention(nn.MultiheadAttention):
    """Attention of a user's module; ``planned`` makes it of torch's own."""

    drop: PlannedDropout
    now: tuple[Tensor, bool]  # keys and mode of the call that goes on

    @classmethod
    def planned(cls, layer: nn.MultiheadAttention, index: int) -> PlannedAttention:
        """Turns a layer into planned attention, in place.

        Args:
            index: the number of its dropout in its net.
        """
        if layer.bias_k is not None or layer.add_zero_attn:
            raise UserError(
                "the model's MultiheadAttention cannot be converted; it needs add_bias_kv=False and "
                "add_zero_attn=False"
            )
        layer.__class__ = cls
        assert isinstance(layer, PlannedAttention)
        layer.__dict__["drop"] = PlannedDropout(
            layer.dropout, index
        )  # no layer of its own: it is given keys here
        return layer

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        given = (query, key, value)
        q, k, v = given if self.batch_first else (x.transpose(0, 1) for x in given)
        q, k, v = (self._heads(x) for x in self._projected(q, k, v))  # [B, H, T or S, d]
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        if attn_mask is not None:
            shape = attn_mask.shape if attn_mask.dim() == 2 else scores.shape
            scores = scores + _added(attn_mask, scores).reshape(shape)
        if key_padding_mask is not None:
            scores = scores + _added(key_padding_mask, scores)[:, None, None, :]
        weights = torch.softmax(scores, -1)
        keys, train = self.now
        weights = self.drop(weights, keys, train)
        out = self.out_proj((weights @ v).transpose(1, 2).flatten(2))
        out = out if self.batch_first else out.transpose(0, 1)
        return out, (weights.mean(1) if average_attn_weights else weights) if need_weights else None

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = repeat(None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return [F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=False)]

    def _heads(self, x: Tensor) -> Tensor:
        heads: Tensor = x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
        return heads


def _added(mask: Tensor, scores: Tensor) -> Tensor:
    """Returns a mask as numbers to add: minus infinity where a mask of truth values is set."""
    if mask.dtype is not torch.bool:
        return mask.to(scores.dtype)
    return torch.zeros_like(mask, dtype=scores.dtype).masked_fill(mask, -math.inf)
