"""Conditional features: one valve turns a feature into a shared and into a client's own one (GPFL).

valve   V(h, c) = relu( (gamma(c) + 1) o h + beta(c) ),   gamma(c), beta(c) = layernorm(relu(A c + a)), two of them
inputs  g = 1/K sum_c v_c  for all clients,  g_k = sum_c n_kc/n_k v_c  for client k;  v_c the embedding of class c
own     CE( head_k( V(h, g_k) ), y )               the head stays on the client
shared  CE( cos(V(h, g), v_c)_c, y )  +  lambda ||V(h, g) - vhat_y||,  vhat the embeddings as received
+ mu/2 (||v||^2 + ||valve||^2).     The body, the embeddings and the valve are averaged
Zhang, Hua, Wang, Song, Xue, Ma, Cao, Guan, ICCV 2023, https://arxiv.org/abs/2308.10279
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Clock,
    Flat,
    Flats,
    Forward,
    Initial,
    Loss,
    Message,
    Mode,
    Out,
    Part,
    Predictor,
    Results,
    Slot,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import squared_distance, zeros_like
from idiolect.errors import refuse_outside

__all__ = ["conditional_features"]

NAME = "conditional_features"


def valve(tree: Flat, features: Tensor, condition: Tensor) -> Tensor:
    """V(h, c) for features [B, d] and one condition [d]."""
    gamma, beta = (
        F.layer_norm(
            F.relu(F.linear(condition, tree[f"{name}.weight"], tree[f"{name}.bias"])),
            condition.shape,
            tree[f"{name}.scale"],
            tree[f"{name}.shift"],
        )
        for name in ("gamma", "beta")
    )
    return F.relu((gamma + 1) * features + beta)


def distance(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """||a - b|| over all real rows [B, d] together; its gradient is 0 where they are equal."""
    square = (((a - b) ** 2).sum(-1) * mask).sum()
    return torch.where(square > 0, square, 1).sqrt() * (square > 0)
