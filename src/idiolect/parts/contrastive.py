"""Model-contrastive term (MOON).

L_con = -log exp(cos(h, h_g)/tau) / (exp(cos(h, h_g)/tau) + exp(cos(h, h_prev)/tau))
h, h_g, h_prev: features of the model in training, the received one, the client's last one
Li, He, Song, CVPR 2021, eq. (3), https://arxiv.org/abs/2103.16257
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.core import UPLOAD, Batch, Flats, Initial, Loss, Model, Out, Part, Results, Slot, View
from idiolect.core.masked_mean import mean_over_rows
from idiolect.core.part import keeps_options
from idiolect.core.trees import where
from idiolect.errors import refuse_outside, refuse_unknown_choice

__all__ = ["contrastive"]


@keeps_options
def contrastive(weight: float = 1.0, temperature: float = 0.5, previous_init: str = "received") -> Part:
    """Pulls features towards the shared model's and away from those of the client's last local model.

    Args:
        weight: mu >= 0; the paper searches 0.1, 1, 5, 10.
        temperature: tau > 0.
        previous_init: the last model at a client's first selection: ``received``, or ``theta0`` (the authors'
            code).

    Deviations: the term acts on the features themselves, without the paper's projection head.  With private layers
    the received model includes the client's own.
    """
    refuse_outside("weight (mu)", weight, 0)
    refuse_outside("temperature (tau)", temperature, 1e-6)
    refuse_unknown_choice("previous_init", previous_init, ("received", "theta0"))

    def init_client(initial: Initial) -> Slot:
        seen = torch.zeros_like(next(iter(initial.params.values())).sum())
        return {"params": initial.params, "buffers": initial.buffers, "seen": seen}

    def previous(view: View) -> Model:
        kept = Model(view.private["params"], view.private["buffers"])
        if previous_init == "theta0":
            return kept
        return Model(*where(view.private["seen"] > 0, tuple(kept), tuple(view.received)))

    def loss(inner: Loss, view: View) -> Loss:
        if not weight:
            return inner
        last = previous(view)

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            near, far = (
                F.cosine_similarity(out.features, view.predict(model, batch).features.detach()) / temperature
                for model in (view.received, last)
            )
            each = F.softplus(far - near)
            return inner(params, batch, out) + weight * mean_over_rows(each, batch.mask)

        return total

    def finish(results: Results, view: View) -> Slot:
        trained = results[UPLOAD]
        seen = view.private["seen"] + 1
        return {"params": trained.params["model"], "buffers": trained.buffers["model"], "seen": seen}

    return Part("contrastive", init_client=init_client, loss=loss, finish=finish, needs_head=True)
