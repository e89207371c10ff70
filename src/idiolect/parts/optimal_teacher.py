"""Optimal teacher: each client keeps the best shared model it has seen and distils from it (PersFL).

O_k = argmin_e CE_val(G_e)                             eq. (2)
A_k distilled from O_k after the last round            eq. (3); PersFL-GD: eq. (7)
Divi, Farrukh, Celik 2021, https://arxiv.org/abs/2105.15191
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import (
    Clock,
    Initial,
    Model,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    Slot,
    Stage,
    View,
    as_received,
)
from idiolect.core.measures import validation
from idiolect.core.part import keeps_options
from idiolect.core.trees import where
from idiolect.errors import refuse_unknown_choice
from idiolect.parts.student_grid import StudentGrid

__all__ = ["optimal_teacher"]

NAME = "optimal_teacher"


@keeps_options
def optimal_teacher(
    lambdas: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0),
    temperatures: tuple[float, ...] = (1.0, 5.0, 25.0),
    epochs: float = 20,
    lr_scale: float = 1.0,
    teacher: str = "optimal",
    soft_loss: str = "kl",
) -> Part:
    """Every client scores each new shared model on validation data; after the last round it distils.

    Args:
        lambdas: grid of lambda in [0, 1].
        temperatures: grid of T > 0.
        epochs: E_d >= 0 of distillation for every grid point; 0 keeps the teacher itself.
        lr_scale: of the scene's learning rate, in distillation.
        teacher: ``optimal`` (eq. 2, earliest round wins ties) or ``fedavg``, the last shared model for all.
        soft_loss: ``kl`` (PersFL, eq. 3), ``soft_cross_entropy`` (PersFL-GD, eq. 7: the same gradient) or
            ``kl_elements`` (averaged over classes too, 1/K of it).

    Deviations: the paper prints neither the grid nor the criterion that picks (lambda, T); the grid is read off
    its table 5, the criterion is validation accuracy, ties going to the smaller lambda, then the smaller T.
    """
    students = StudentGrid(lambdas, temperatures, epochs, lr_scale, soft_loss)
    refuse_unknown_choice("teacher", teacher, ("optimal", "fedavg"))

    def init_client(initial: Initial) -> Slot:
        zero = torch.zeros_like(next(iter(initial.params.values())).sum())
        model = {"params": initial.params, "buffers": initial.buffers}
        return {"teacher": model, "loss": zero + float("inf"), "round": zero}

    def taught_by(view: View) -> Model:
        return view.received if teacher == "fedavg" else Model(**view.private["teacher"])

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        merged = Stage("score", NAME, as_received, measure=validation(), split="valid")
        end = students.stages(NAME, taught_by)
        return plan._replace(merged=(*plan.merged, merged), end=(*plan.end, *end))

    def score(results: Results, view: View) -> Slot:
        scored = results["score"]
        loss = scored.measured["loss"]
        better = loss < view.private["loss"]
        seen = {
            "teacher": {"params": scored.params["model"], "buffers": scored.buffers["model"]},
            "loss": loss,
            "round": torch.full_like(loss, view.clock.round + 1),
        }
        return where(better, seen, view.private)

    def personalise(results: Results, view: View) -> Slot:
        return {**view.private, "student": students.best(results)}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        found = {"teacher": Predictor.of(taught_by(view))}
        if "student" in view.private:
            student = view.private["student"]
            found["companion"] = Predictor.of(Model(student["params"], student["buffers"]))
        return found

    def remarks(view: View) -> dict[str, Tensor]:
        last = torch.full_like(view.private["round"], view.clock.round)
        found = {"teacher round": last if teacher == "fedavg" else view.private["round"]}
        if "student" in view.private:
            found |= {name: view.private["student"][name] for name in ("lambda", "temperature")}
        return found

    return Part(
        NAME,
        init_client=init_client,
        stages=stages,
        remarks=remarks,
        score=score,
        personalise=personalise,
        predictors=predictors,
        needs_validation=True,
        needs_classes=True,
        roles=("companion predictor",),
        headline="companion",
        apart=True,
    )
