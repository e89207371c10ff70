"""Restricted softmax: the logits of classes that a client lacks are scaled down while it trains (FedRS).

p_c = exp(a_c w_c.h) / sum_j exp(a_j w_j.h),     a_c = 1 if the client observes class c, else alpha
Li and Zhan, KDD 2021; Li et al., TKDE 2024 (MAP), eq. (8)-(9)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from idiolect.core import Batch, Flats, Forward, Mode, Out, Part, Scene, Structure, View
from idiolect.core.part import keeps_options
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice

__all__ = ["RULES", "restricted_softmax"]

Rule = Callable[[Tensor, float, int], Tensor]  # (class counts [K], alpha, min_count) -> scales [K]


def paper(counts: Tensor, alpha: float, min_count: int) -> Tensor:
    """a_c = 1 if observed, else alpha."""
    return torch.where(counts >= min_count, torch.ones_like(counts), alpha)


def freq_max(counts: Tensor, alpha: float, min_count: int) -> Tensor:
    """a_c = alpha + (1 - alpha) m_c / max_j m_j: the FedRS authors' code."""
    return alpha + (1 - alpha) * counts / counts.max().clamp(min=1)


def freq(counts: Tensor, alpha: float, min_count: int) -> Tensor:
    """a_c = m_c / sum_j m_j: MAP section 5.4, for clients that hold every class; alpha plays no part."""
    return counts / counts.sum().clamp(min=1)


def uniform(counts: Tensor, alpha: float, min_count: int) -> Tensor:
    """a_c = alpha for every class, a temperature: what the released MAP code computes."""
    return torch.full_like(counts, alpha)


RULES: dict[str, Rule] = {"paper": paper, "freq_max": freq_max, "freq": freq, "uniform": uniform}


@keeps_options
def restricted_softmax(alpha: float = 0.9, rule: str = "paper", min_count: int = 1) -> Part:
    """Scales training logits by ``rule``; evaluation always sees them unscaled.

    Args:
        alpha: in [0, 1]; 1 is the ordinary softmax (rules ``paper`` and ``freq_max``).  0 is not a masked
            softmax: every missing class still adds exp(0) = 1 to the denominator.
        rule: ``paper``, ``freq_max``, ``freq`` or ``uniform``.
        min_count: training samples from which a class counts as observed (rule ``paper``).

    Deviations: none.  A bias in the classifier is scaled with the logit.
    """
    refuse_outside("alpha", alpha, 0, 1)
    refuse_outside("min_count", min_count, 1)
    refuse_unknown_choice("rule", rule, RULES)

    def check(structure: Structure, scene: Scene) -> None:
        if not structure.linear_head:
            raise UserError(
                "restricted_softmax needs a network whose classifier is a single linear layer and trained"
            )

    def forward(inner: Forward, view: View) -> Forward:
        scale = RULES[rule](view.facts.class_counts, alpha, min_count)

        def scaled(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            out, new = inner(params, buffers, batch, train)
            return out._replace(logits=out.logits * scale), new

        return scaled

    return Part(
        "restricted_softmax",
        forward=forward,
        check=check,
        needs_classes=True,
        needs_head=True,
        roles=("logit map",),
    )
