"""Optimal teacher: each client keeps the best shared model it has seen and distils from it (PersFL).

O_k = argmin_e CE_val(G_e)                                                              eq. (2)
A_k <- O_k;  min (1 - lambda) CE(y, sigma(A)) + lambda T^2 KL(sigma(O/T) || sigma(A/T))   eq. (7)
(lambda, T) from a grid, the best on validation data
Divi, Farrukh, Celik 2021, https://arxiv.org/abs/2105.15191
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from idiolect.core import (
    Batch,
    Clock,
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
    Tree,
    Trees,
    View,
    as_received,
)
from idiolect.core.measures import validation
from idiolect.core.trees import where
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice
from idiolect.parts.distillation import FORMS

__all__ = ["grid_of", "optimal_teacher"]

NAME = "optimal_teacher"


def grid_of(lambdas: tuple[float, ...], temperatures: tuple[float, ...]) -> list[tuple[float, float]]:
    """(lambda, T) in the order in which ties are won; T has no effect at lambda = 0 and is 1 there.

    >>> grid_of((0.0, 0.5), (1.0, 5.0))
    [(0.0, 1.0), (0.5, 1.0), (0.5, 5.0)]
    """
    found = {(weight, 1.0 if weight == 0 else t) for weight, t in product(lambdas, temperatures)}
    return sorted(found)


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
        soft_loss: ``kl`` (PersFL), ``soft_cross_entropy`` (PersFL-GD: the same gradient) or ``kl_elements``
            (averaged over classes too, 1/K of it).

    Deviations: the paper prints neither the grid nor the criterion that picks (lambda, T); the grid is read off
    its table 5, the criterion is validation accuracy, ties going to the smaller lambda, then the smaller T.
    """
    grid = grid_of(tuple(lambdas), tuple(temperatures))
    if not grid:
        raise UserError("lambdas and temperatures need at least one value each")
    for weight, temperature in grid:
        refuse_outside("lambda", weight, 0, 1)
        refuse_outside("temperature (T)", temperature, 1e-6)
    refuse_outside("epochs", epochs, 0)
    refuse_outside("lr_scale", lr_scale, 0)
    refuse_unknown_choice("teacher", teacher, ("optimal", "fedavg"))
    refuse_unknown_choice("soft_loss", soft_loss, ("kl", "soft_cross_entropy", "kl_elements"))
    soft = FORMS[soft_loss]

    def init_client(initial: Initial) -> Tree:
        zero = torch.zeros_like(next(iter(initial.params.values())).sum())
        model = {"params": initial.params, "buffers": initial.buffers}
        return {"teacher": model, "loss": zero + float("inf"), "round": zero}

    def taught_by(view: View) -> Model:
        return view.received if teacher == "fedavg" else Model(**view.private["teacher"])

    def from_teacher(received: Trees, results: Results, view: View) -> Trees:
        model = taught_by(view)
        return {"model": model.params}, {"model": model.buffers}

    def distil(weight: float, temperature: float) -> Stage:
        def objective(view: View) -> Loss:
            def total(params: Tree, batch: Batch, out: Out) -> Tensor:
                wanted = view.predict(taught_by(view), batch).logits
                hard = view.task.criterion(params, batch, out)
                return (1 - weight) * hard + weight * soft(out.logits, wanted, batch.mask, temperature)

            return total

        name = f"distil {weight:g} {temperature:g}"
        return Stage(name, NAME, from_teacher, objective, epochs=epochs, lr_scale=lr_scale, stream="distil")

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        merged = Stage("score", NAME, as_received, measure=validation(), split="valid")
        end = []
        for weight, temperature in grid:
            trained = distil(weight, temperature)
            end += [trained, Stage(f"valid {trained.name}", NAME, measure=validation(), split="valid")]
        return plan._replace(merged=(*plan.merged, merged), end=(*plan.end, *end))

    def score(results: Results, view: View) -> Tree:
        scored = results["score"]
        loss = scored.measured["loss"]
        better = loss < view.private["loss"]
        seen = {
            "teacher": {"params": scored.params["model"], "buffers": scored.buffers["model"]},
            "loss": loss,
            "round": torch.full_like(loss, view.clock.round + 1),
        }
        return where(better, seen, view.private)

    def personalise(results: Results, view: View) -> Tree:
        chosen: Tree = {}
        for weight, temperature in grid:
            name = f"distil {weight:g} {temperature:g}"
            trained, accuracy = results[name], results[f"valid {name}"].measured["accuracy"]
            found = {
                "params": trained.params["model"],
                "buffers": trained.buffers["model"],
                "accuracy": accuracy,
                "lambda": torch.full_like(accuracy, weight),
                "temperature": torch.full_like(accuracy, temperature),
            }
            chosen = where(accuracy > chosen["accuracy"], found, chosen) if chosen else found
        return {**view.private, "student": chosen}

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
        roles=("companion predictor",),
        headline="companion",
    )
