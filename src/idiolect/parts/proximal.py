"""Proximal term (FedProx).

min_w  F_k(w) + mu/2 ||w - w_t||^2            Li et al., MLSys 2020, eq. (2)
https://arxiv.org/abs/1812.06127
"""

from __future__ import annotations

from torch import Tensor

from idiolect.core import Batch, Flats, Loss, Out, Part, View
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.parts.proximity import FORMS

__all__ = ["proximal"]


@keeps_options
def proximal(weight: float = 0.01, form: str = "sq_half") -> Part:
    """Keeps the local model near the received one.

    Args:
        weight: mu >= 0; 0 makes this the identity.
        form: ``sq_half`` (the paper), ``sq``, ``norm`` or ``mean_smooth_l1``.

    Deviations: none.  With private layers the term covers the shared parameters only; buffers are left out.
    """
    refuse_outside("weight (mu)", weight, 0)
    refuse_unknown_choice("form", form, FORMS)

    def loss(inner: Loss, view: View) -> Loss:
        if not weight:
            return inner

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            near = FORMS[form](params["model"], view.origin.params)
            return inner(params, batch, out) + weight * near

        return total

    return Part("proximal", loss=loss, roles=("proximal term",))
