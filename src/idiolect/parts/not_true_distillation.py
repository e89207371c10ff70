"""Not-true distillation: the received model teaches all classes but the label's (FedNTD).

L = CE + beta tau^2 KL( q~_g || q~ ),    q~_c = exp(z_c / tau) / sum_{c' != y} exp(z_c' / tau)  for c != y
q~_g the same of the received model, which is not differentiated
Lee, Jeong, Shin, Bae, Yun, NeurIPS 2022, section 4, https://arxiv.org/abs/2106.03097
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import Batch, Flats, Loss, Out, Part, View
from idiolect.core.masked_mean import mean_over_rows
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside

__all__ = ["not_true_distillation"]


def not_true_kl(student: Tensor, teacher: Tensor, labels: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """tau^2 KL of the softmax over the classes other than the label's, averaged over real rows."""
    own = labels[:, None] == torch.arange(student.shape[-1], device=labels.device)
    lowest = torch.finfo(student.dtype).min
    ours, theirs = (
        torch.where(own, lowest, logits / temperature).log_softmax(-1)
        for logits in (student, teacher.detach())
    )
    each = torch.where(own, 0, theirs.exp() * (theirs - ours)).sum(-1)
    return temperature**2 * mean_over_rows(each, mask)


@keeps_options
def not_true_distillation(weight: float = 1.0, temperature: float = 1.0) -> Part:
    """Keeps what the received model says about the classes that a row is not.

    Args:
        weight: beta >= 0; 0 is FedAvg.
        temperature: tau > 0 of the divergence.

    Deviations: none.  With private layers the teacher includes the client's own.
    """
    refuse_outside("weight (beta)", weight, 0)
    refuse_outside("temperature (tau)", temperature, 1e-6)

    def loss(inner: Loss, view: View) -> Loss:
        if not weight:
            return inner

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            teacher = view.predict(view.received, batch).logits
            taught = not_true_kl(out.logits, teacher, batch.y, batch.mask, temperature)
            return inner(params, batch, out) + weight * taught

        return total

    return Part("not_true_distillation", loss=loss, needs_classes=True)
