"""Knowledge transfer from a frozen model of the same shape to the one in training (FedPHP section 3.3, eq. 6-9).

KD    tau^2 mean KL(sigma(g_p/tau) || sigma(g_s/tau))
MMD   biased squared maximum mean discrepancy of the features h, five Gaussian kernels
L2    1/(2B) sum_i ||h_s,i - h_p,i||^2
Prox  ||theta_s - theta_p||^2

Features are what enters the first linear layer, before any dropout, as in the paper's experiments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from idiolect.core import Batch, Model, Out, View
from idiolect.core.masked_mean import mean_over_rows
from idiolect.core.trees import squared_distance
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.parts.distillation import FORMS, SoftLoss

__all__ = ["BY_FEATURES", "TRANSFERS", "Transfer", "mmd_squared", "transfer_of"]

# (parameters in training, their outputs, the batch, the teacher, the view) -> scalar
Transfer = Callable[[dict[str, Tensor], Out, Batch, Model, View], Tensor]


def mmd_squared(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """Biased MMD^2 of two feature sets [B, d], diagonals included, over the real rows.

    D = pairwise squared distances of the 2B features;  s = sum(D)/(N^2 - N) + 1e-8, N = 2B, no gradient
    kernel = sum_{i=0..4} exp(-D / (s 2^i / 4));   MMD^2 = mean(K_aa + K_bb - K_ab - K_ba)

    The bandwidth of a batch of one row is its own distance, so that its gradient is about 1/|a - b|.
    """
    real = torch.cat([mask, mask])
    both = torch.cat([a, b])
    # Centred, because otherwise the products below cancel and lose digits.
    both = both - ((both * real[:, None]).sum(0) / real.sum().clamp(min=1)).detach()
    pairs = real[:, None] * real[None, :]
    norms = (both**2).sum(-1)
    product = (norms[:, None] + norms[None, :] - 2 * both @ both.T).clamp(min=0)
    distance = torch.where(torch.eye(len(a)).repeat(2, 2).to(mask) > 0, _paired(a, b), product)
    n = real.sum()
    bandwidth = (distance.detach() * pairs).sum() / (n**2 - n).clamp(min=1) + 1e-8
    kernel = torch.stack([torch.exp(-distance / (bandwidth * 2**i / 4)) for i in range(5)]).sum(0) * pairs
    sign = torch.cat([torch.ones_like(mask), -torch.ones_like(mask)])
    return (kernel * sign[:, None] * sign[None, :]).sum() / mask.sum().clamp(min=1) ** 2


def _paired(a: Tensor, b: Tensor) -> Tensor:
    """Returns the distances of each row to itself and to its twin, from differences, because products would cancel."""
    twins = torch.eye(len(a)).to(a) * ((a - b) ** 2).sum(-1)
    none = torch.zeros_like(twins)
    return torch.cat([torch.cat([none, twins], 1), torch.cat([twins, none], 1)])


def encoding(out: Out) -> Tensor:
    """Returns what enters the first linear layer of the network."""
    return out.features if out.encoded is None else out.encoded


def kd(
    params: dict[str, Tensor],
    out: Out,
    batch: Batch,
    teacher: Model,
    view: View,
    form: SoftLoss,
    temperature: float,
) -> Tensor:
    return form(out.logits, view.predict(teacher, batch).logits, batch.mask, temperature)


def mmd(params: dict[str, Tensor], out: Out, batch: Batch, teacher: Model, view: View) -> Tensor:
    return mmd_squared(encoding(out), encoding(view.predict(teacher, batch)).detach(), batch.mask)


def l2(params: dict[str, Tensor], out: Out, batch: Batch, teacher: Model, view: View) -> Tensor:
    gap = ((encoding(out) - encoding(view.predict(teacher, batch)).detach()) ** 2).sum(-1)
    return mean_over_rows(gap, batch.mask) / 2


def prox(params: dict[str, Tensor], out: Out, batch: Batch, teacher: Model, view: View) -> Tensor:
    return squared_distance(params, teacher.params)


TRANSFERS = ("kd", "mmd", "l2", "prox")
BY_FEATURES = ("mmd", "l2")  # those that compare features


def transfer_of(name: str, temperature: float = 4.0, kd_form: str = "kl") -> Transfer:
    """Returns the transfer term called ``name``; temperature (tau > 0) and form matter for ``kd`` alone."""
    refuse_unknown_choice("transfer", name, TRANSFERS)
    refuse_unknown_choice("kd_form", kd_form, FORMS)
    refuse_outside("temperature (tau)", temperature, 1e-6)
    if name == "kd":
        return partial(kd, form=FORMS[kd_form], temperature=temperature)
    return {"mmd": mmd, "l2": l2, "prox": prox}[name]
