"""Inherited teacher: the client's inherited private model teaches while the shared model trains (FedPHP).

min  (1 - lambda) CE(theta) + lambda L_kt(theta; theta_p),     theta_p <- (1 - mu_k) thetahat + mu_k theta_p
Li, Zhan, Shao, Li, Song, ECML-PKDD 2021, algorithm 1, eq. (5) and (10)
"""

from __future__ import annotations

from torch import Tensor

from idiolect.core import UPLOAD, Batch, Clock, Flats, Loss, Out, Part, Plan, Results, Scene, Slot, View
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.parts.inheritance import Inheritance
from idiolect.parts.transfer import BY_FEATURES, transfer_of

__all__ = ["inherited_teacher"]

NAME = "inherited_teacher"
HEADLINES = {"hpm": "companion", "personalised": "after-local", "ensemble": "ensemble"}


@keeps_options
def inherited_teacher(
    transfer: str = "mmd",
    transfer_weight: float = 0.01,
    temperature: float = 4.0,
    kd_form: str = "kl",
    momentum: float = 0.9,
    schedule: str = "mu_a",
    momentum_max: float = 1.0,
    hpm_init: str = "lazy",
    hpm_statistics: str = "ema",
    inference: str = "hpm",
    counter: str = "before",
) -> Part:
    """The inherited private model (HPM) acts inside the main stage and then inherits what was learnt.

    Args:
        transfer: L_kt, ``mmd`` (the paper's scenes), ``kd``, ``l2`` or ``prox``.
        transfer_weight: lambda in [0, 1]; 0 leaves the shared model's training alone, 1 ignores the labels.
        temperature, kd_form: tau > 0 and form of ``kd``.
        momentum, schedule, momentum_max, hpm_init, hpm_statistics, counter: see ``Inheritance``.
        inference: ``hpm``, ``personalised`` (the last local model) or ``ensemble`` (mean probability of both).

    Deviations: the paper does not say what a client without an HPM does at its first selection: it trains with
    cross-entropy alone, and its HPM becomes the local model.  The paper's section 3.2 and its algorithm 1 read the
    counter at different times: ``counter``.  A network without an encoder, whose first linear layer reads the input
    itself, compares what enters its last layer.
    """
    refuse_outside("transfer_weight (lambda)", transfer_weight, 0, 1)
    refuse_unknown_choice("inference", inference, HEADLINES)
    keep_last = inference != "hpm"
    hpm = Inheritance(momentum, schedule, momentum_max, hpm_init, hpm_statistics, keep_last, counter)
    term = transfer_of(transfer, temperature, kd_form)

    def loss(inner: Loss, view: View) -> Loss:
        weight = transfer_weight * hpm.exists(view)

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            taught = term(params["model"], out, batch, hpm.teacher(view), view)
            return (1 - weight) * inner(params, batch, out) + weight * taught

        return total

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        return plan._replace(after=plan.after + hpm.stages(NAME, UPLOAD))

    def finish(results: Results, view: View) -> Slot:
        return hpm.slot(results, UPLOAD, view)

    return Part(
        NAME,
        needs_head=transfer in BY_FEATURES,
        init_client=hpm.init_client,
        loss=loss,
        stages=stages,
        finish=finish,
        predictors=hpm.predictors,
        needs_classes=transfer == "kd" or keep_last,
        roles=("inherited model", "companion predictor"),
        headline=HEADLINES[inference],
    )
