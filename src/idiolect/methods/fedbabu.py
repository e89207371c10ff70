"""FedBABU: federated averaging with body aggregation and body update."""

from __future__ import annotations

from typing import Any

from idiolect.core import Method, chain
from idiolect.parts import average, fine_tune, fixed_head

__all__ = ["fedbabu"]


def fedbabu(count: int = 1, epochs: float = 5, lr_scale: float = 0.01, tuned: str = "all") -> Method:
    """Only the body is trained and averaged; every client fine-tunes the final model, head included, for itself.

    Features grow to fit a head that stays as small as it was initialised, so that fine-tuning the head takes short
    steps.  The preset ``paper`` does not set lr_scale and takes the default, which is this library's choice.

    Oh, Kim, Yun, ICLR 2022, https://arxiv.org/abs/2106.06042

    Args:
        count: units >= 0 of the head, counted from the output.
        epochs: >= 0 of the fine-tuning after the last round (tau_f in the paper, mostly 5).
        lr_scale: >= 0, of the fine-tuning, times the scene's learning rate.
        tuned: ``all`` (F in the paper), ``head`` (H) or ``body`` (B); the head is one unit in either case.
    """
    return chain(average(), fixed_head(count), fine_tune(epochs, lr_scale, tuned), name="fedbabu")


presets: dict[str, dict[str, Any]] = {"paper": {"count": 1, "epochs": 5, "tuned": "all"}}
