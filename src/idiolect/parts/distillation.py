"""Soft-label losses between a frozen teacher's logits and a student's; means run over the real rows.

KD:   tau^2 KL(sigma(g/tau) || sigma(z/tau))          Hinton et al. 2015; PersFL, eq. (3); FedPHP, eq. (6)
      tau^2 CE(sigma(g/tau), sigma(z/tau))            PersFL-GD, eq. (7)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from idiolect.core.masked_mean import mean_over_rows

__all__ = ["FORMS", "SoftLoss", "kl", "kl_elements", "soft_cross_entropy", "teacher_only"]

SoftLoss = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # student [B,K], teacher [B,K], mask [B], tau


def soft_cross_entropy(student: Tensor, teacher: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """tau^2 CE(sigma(g/tau), sigma(z/tau)): the same gradient as ``kl``, larger by the teacher's entropy."""
    target = (teacher.detach() / temperature).softmax(-1)
    each = -(target * (student / temperature).log_softmax(-1)).sum(-1)
    return temperature**2 * mean_over_rows(each, mask)


def kl(student: Tensor, teacher: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """tau^2 KL(sigma(g/tau) || sigma(z/tau)), summed over classes, averaged over rows."""
    return temperature**2 * mean_over_rows(_divergence(student, teacher, temperature).sum(-1), mask)


def kl_elements(student: Tensor, teacher: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """``kl`` averaged over classes too: 1/K of it, as a framework's element-wise mean gives."""
    return temperature**2 * mean_over_rows(_divergence(student, teacher, temperature).mean(-1), mask)


def teacher_only(student: Tensor, teacher: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """CE(sigma(g/tau), sigma(z)): temperature on the teacher alone, no tau^2; the FedPHP and MAP code."""
    target = (teacher.detach() / temperature).softmax(-1)
    return mean_over_rows(-(target * student.log_softmax(-1)).sum(-1), mask)


def _divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    log_target = (teacher.detach() / temperature).log_softmax(-1)
    return torch.exp(log_target) * (log_target - (student / temperature).log_softmax(-1))


FORMS: dict[str, SoftLoss] = {
    "kl": kl,
    "soft_cross_entropy": soft_cross_entropy,
    "kl_elements": kl_elements,
    "teacher_only": teacher_only,
}
