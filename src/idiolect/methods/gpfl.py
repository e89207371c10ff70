"""GPFL: simultaneously learning global and personalised feature information."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, conditional_features

__all__ = ["gpfl"]


def gpfl(
    weight: float = 0.01, decay: float = 0.0, head_init: str = "shared", valve_scale: float = 0.1
) -> Method:
    """One valve, conditioned on embeddings of the classes, makes shared features and features of a client's own.

    A client's condition follows from the embeddings that it has just received; released code takes it from those
    of the round before.

    Zhang, Hua, Wang, Song, Xue, Ma, Cao, Guan, ICCV 2023, https://arxiv.org/abs/2308.10279

    Args:
        weight: lambda >= 0 of the distance to the received embeddings.
        decay: mu >= 0, weight decay of embeddings and valve.
        head_init: of the private head, ``shared`` or ``random``.
        valve_scale: >= 0, the first scale of the valve's layer normalisations; 1 is usual, and the preset ``paper``.
    """
    return chain(average(), conditional_features(weight, decay, head_init, valve_scale), name="gpfl")


presets = {"paper": {"weight": 0.01, "decay": 0.1, "valve_scale": 1.0}}
