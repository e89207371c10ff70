"""Proximal companion: a private model trained beside the shared one, kept near it (Ditto).

w as in FedAvg;   min_v  F_k(v) + lambda/2 ||v - theta_t||^2,   theta_t the model as received
Li et al., ICML 2021, algorithm 1, https://arxiv.org/abs/2012.04221
"""

from __future__ import annotations

from torch import Tensor

from idiolect.core import (
    Batch,
    Clock,
    Flats,
    Initial,
    Loss,
    Model,
    Out,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    Stage,
    Trees,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.parts.proximity import FORMS

__all__ = ["proximal_companion"]

NAME = "proximal_companion"
STAGE = "companion"


@keeps_options
def proximal_companion(weight: float = 0.1, epochs: float | None = None, form: str = "sq_half") -> Part:
    """After the upload, every selected client goes on training a model of its own with the plain softmax.

    Args:
        weight: lambda >= 0; 0 is local training, a large one keeps the companion at the received model.
        epochs: E_p of the companion; None takes the scene's local epochs.
        form: of the proximal term: ``sq_half`` (the paper), ``sq``, ``norm`` or ``mean_smooth_l1``.

    Deviations: none.  The companion sees the batches of the main stage and a fresh optimiser.
    """
    refuse_outside("weight (lambda)", weight, 0)
    refuse_unknown_choice("form", form, FORMS)
    if epochs is not None:
        refuse_outside("epochs (E_p)", epochs, 0)

    def init_client(initial: Initial) -> Flats:
        return {"params": initial.params, "buffers": initial.buffers}

    def start(received: Trees, results: Results, view: View) -> Trees:
        return {"model": view.private["params"]}, {"model": view.private["buffers"]}

    def objective(view: View) -> Loss:
        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            near = FORMS[form](params["model"], view.origin.params)
            return view.task.criterion(params, batch, out) + weight * near

        return total

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        return plan._replace(
            after=(*plan.after, Stage(STAGE, NAME, start, objective, epochs=epochs, has_minimum=True))
        )

    def finish(results: Results, view: View) -> Flats:
        trained = results[STAGE]
        return {"params": trained.params["model"], "buffers": trained.buffers["model"]}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        return {"companion": Predictor.of(Model(**view.private))}

    return Part(
        NAME,
        init_client=init_client,
        stages=stages,
        finish=finish,
        predictors=predictors,
        roles=("companion predictor",),
        headline="companion",
        apart=True,
    )
