"""Mutual companion: a private and the shared model teach each other (FedDML, federated mutual learning).

L_g = a CE(z_g) + (1 - a) KL(p_p || p_g),     L_p = b CE(z_p) + (1 - b) KL(p_g || p_p)
the side that teaches is not differentiated
Shen et al. 2020, https://arxiv.org/abs/2006.16765
"""

from __future__ import annotations

from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Flats,
    Forward,
    Initial,
    Loss,
    Mode,
    Model,
    Out,
    Part,
    Predictor,
    Results,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.parts.distillation import kl

__all__ = ["mutual_companion"]

NAME = "mutual_companion"


@keeps_options
def mutual_companion(
    shared_weight: float = 0.5,
    own_weight: float = 0.5,
    temperature: float = 1.0,
    companion_init: str = "fresh",
) -> Part:
    """Both models train on every batch, each from the labels and from the other.

    Args:
        shared_weight: a in [0, 1], weight of the labels for the shared model.
        own_weight: b in [0, 1], for the private one; a = b = 1 is FedAvg beside local training.
        temperature: tau > 0 of both divergences (times tau^2).
        companion_init: ``fresh`` (the client's own seed) or ``copy``.

    Deviations: the private model has the shared one's architecture.
    """
    refuse_outside("shared_weight (a)", shared_weight, 0, 1)
    refuse_outside("own_weight (b)", own_weight, 0, 1)
    refuse_outside("temperature (tau)", temperature, 1e-6)
    refuse_unknown_choice("companion_init", companion_init, ("fresh", "copy"))

    def init_client(initial: Initial) -> Flats:
        own = initial.params if companion_init == "copy" else initial.draw(NAME, True).params
        return {"params": own, "buffers": initial.buffers}

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        own = view.private
        return {**params, "own": own["params"]}, {**buffers, "own": own["buffers"]}

    def forward(inner: Forward, view: View) -> Forward:
        def both(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            ours, new = inner({"model": params["model"]}, {"model": buffers["model"]}, batch, train)
            mine, own = inner({"model": params["own"]}, {"model": buffers["own"]}, batch, train)
            extra = {**ours.extra, NAME: mine.logits}
            return ours._replace(extra=extra), {"model": new["model"], "own": own["model"]}

        return both

    def loss(inner: Loss, view: View) -> Loss:
        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            mine = out.extra[NAME]
            ours = inner(params, batch, out)
            own = view.task.criterion(params, batch, out._replace(logits=mine))
            from_own = kl(out.logits, mine, batch.mask, temperature)
            from_shared = kl(mine, out.logits, batch.mask, temperature)
            taught = shared_weight * ours + (1 - shared_weight) * from_own
            return taught + own_weight * own + (1 - own_weight) * from_shared

        return total

    def finish(results: Results, view: View) -> Flats:
        trained = results[UPLOAD]
        return {"params": trained.params["own"], "buffers": trained.buffers["own"]}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        return {"companion": Predictor.of(Model(**view.private))}

    return Part(
        NAME,
        init_client=init_client,
        start=start,
        forward=forward,
        loss=loss,
        finish=finish,
        predictors=predictors,
        needs_classes=True,
        roles=("companion training", "main predictor", "companion predictor"),
        headline="companion",
    )
