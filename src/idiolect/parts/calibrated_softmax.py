"""Calibrated softmax: a class has to win by a margin that grows as its samples get fewer (FedLC).

z~_c = z_c - tau n_c^(-1/4),   n_c the client's training samples of class c;   a class without samples drops out
all      L = -log( exp z~_y / sum_c exp z~_c )         cross-entropy of the calibrated logits
others   L = -log( exp z~_y / sum_{c != y} exp z~_c )  as the paper writes it
Zhang, Li, Li, Xu, Wu, Ding, Wu, ICML 2022, https://arxiv.org/abs/2209.00189
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import Batch, Flats, Loss, Out, Part, View
from idiolect.core.masked_mean import mean_over_rows
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside, refuse_unknown_choice

__all__ = ["calibrated_softmax"]


def margins(counts: Tensor, calibration: float) -> Tensor:
    """tau n_c^(-1/4) for every class [K], infinite for a class without samples; all 0 if tau is 0."""
    return calibration * counts**-0.25 if calibration else torch.zeros_like(counts)


def against_others(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """-log(exp z_y / sum_{c != y} exp z_c), a mean over real rows; a row without another class adds nothing."""
    own = labels[:, None] == torch.arange(logits.shape[-1], device=labels.device)
    rivals = (logits > -torch.inf) & ~own
    alone = ~rivals.any(-1, keepdim=True)
    rest = torch.where(rivals | alone, logits, -torch.inf).logsumexp(-1)
    each = torch.where(alone.squeeze(-1), 0, rest - logits.gather(-1, labels[:, None]).squeeze(-1))
    return mean_over_rows(each, mask)


@keeps_options
def calibrated_softmax(calibration: float = 1.0, denominator: str = "all") -> Part:
    """Subtracts a margin from each logit in the loss on labels; predictions and other terms see plain logits.

    Args:
        calibration: tau >= 0; 0 is the ordinary softmax where ``denominator`` is ``all``.
        denominator: ``all`` classes, or the ``others`` than the label's (the paper's formula, whose loss has no lower
            bound).

    Deviations: the default sums over all classes, because without the label's own class the loss falls without end
    as logits grow.  Counts are each client's own, as in the paper.
    """
    refuse_outside("calibration (tau)", calibration, 0)
    refuse_unknown_choice("denominator", denominator, ("all", "others"))

    def criterion(inner: Loss, view: View) -> Loss:
        margin = margins(view.facts.class_counts, calibration)

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            logits = out.logits - margin
            if denominator == "others":
                return against_others(logits, batch.y, batch.mask)
            return inner(params, batch, out._replace(logits=logits))

        return total

    return Part("calibrated_softmax", criterion=criterion, needs_classes=True, roles=("logit map",))
