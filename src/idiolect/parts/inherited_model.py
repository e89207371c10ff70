"""Inherited private model: a private stage after the upload trains with the inherited private model (MAP).

stage 1: E/2 epochs of the shared objective, then upload
stage 2: E/2 epochs of (1 - lambda) CE(psi) + lambda L_kt(psi; HPM) with the plain softmax
HPM <- (1 - mu_k) psihat + mu_k HPM
Li, Song, Li, Li, Shao, Yang, Zhan, IEEE TKDE 2024, algorithm 1
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Clock,
    Flats,
    Loss,
    Out,
    Part,
    Plan,
    Results,
    Scene,
    Slot,
    Stage,
    Trees,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.parts.inheritance import Inheritance
from idiolect.parts.transfer import BY_FEATURES, transfer_of

__all__ = ["inherited_model"]

NAME = "inherited_model"
STAGE = "private"


@keeps_options
def inherited_model(
    transfer: str = "kd",
    transfer_weight: float = 0.01,
    temperature: float = 4.0,
    kd_form: str = "kl",
    momentum: float = 0.9,
    schedule: str = "mu_a",
    momentum_max: float = 1.0,
    hpm_init: str = "lazy",
    hpm_statistics: str = "ema",
    shared_share: float = 0.5,
    private_share: float = 0.5,
    private_lr_scale: float = 1.0,
    private_min_steps: int = 0,
    rounding: str = "ceil",
    counter: str = "before",
) -> Part:
    """Splits local training at the upload: the stage after it trains the client's own model.

    Args:
        transfer: L_kt, ``kd`` (default), ``mmd``, ``l2`` or ``prox``.
        transfer_weight: lambda in [0, 1].
        temperature, kd_form: tau > 0 and form of ``kd``.
        momentum, schedule, momentum_max, hpm_init, hpm_statistics, counter: see ``Inheritance``.
        shared_share, private_share: of the scene's local epochs, before and after the upload.
        private_lr_scale: of the scene's learning rate, in the private stage.
        private_min_steps: least number of private steps.
        rounding: where half an epoch falls between two steps, ``ceil`` gives the odd step to the shared stage,
            ``floor`` to the private one.

    Deviations: none in the paper's setting.  The private stage has a fresh optimiser and its own shuffle.
    """
    refuse_outside("transfer_weight (lambda)", transfer_weight, 0, 1)
    refuse_outside("shared_share", shared_share, 0)
    refuse_outside("private_share", private_share, 0)
    refuse_outside("private_lr_scale", private_lr_scale, 0)
    refuse_outside("private_min_steps", private_min_steps, 0)
    refuse_unknown_choice("rounding", rounding, ("ceil", "floor"))
    hpm = Inheritance(momentum, schedule, momentum_max, hpm_init, hpm_statistics, counter=counter)
    term = transfer_of(transfer, temperature, kd_form)

    def start(received: Trees, results: Results, view: View) -> Trees:
        uploaded = results[UPLOAD]
        return {"model": uploaded.params["model"]}, {"model": uploaded.buffers["model"]}

    def objective(view: View) -> Loss:
        weight = transfer_weight * hpm.exists(view)

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            taught = term(params["model"], out, batch, hpm.teacher(view), view)
            return (1 - weight) * view.task.criterion(params, batch, out) + weight * taught

        return total

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        shared = tuple(
            replace(s, share=s.share * shared_share, rounding=rounding) if s.epochs is None else s
            for s in plan.before
        )
        private = Stage(
            STAGE,
            owner=NAME,
            start=start,
            objective=objective,
            share=private_share,
            rounding="floor" if rounding == "ceil" else "ceil",
            min_steps=private_min_steps,
            lr_scale=private_lr_scale,
            stream=STAGE,
        )
        return plan._replace(before=shared, after=(*plan.after, private, *hpm.stages(NAME, STAGE)))

    def finish(results: Results, view: View) -> Slot:
        return hpm.slot(results, STAGE, view)

    return Part(
        NAME,
        needs_head=transfer in BY_FEATURES,
        init_client=hpm.init_client,
        stages=stages,
        finish=finish,
        predictors=hpm.predictors,
        needs_classes=transfer == "kd",
        roles=("inherited model", "main stage", "companion predictor"),
        headline="companion",
        apart=True,
    )
