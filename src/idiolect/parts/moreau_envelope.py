"""Moreau envelope: the shared model follows personal models that are solved for in an inner loop (pFedMe).

theta_k ~ argmin_theta f(theta; batch) + lambda/2 ||theta - w||^2     K inner steps of size eta_p
w <- w - eta lambda (w - theta_k);       server: w <- (1 - beta) w + beta mean_k w_k
Dinh, Tran, Nguyen, NeurIPS 2020, algorithm 1, https://arxiv.org/abs/2006.08848
"""

from __future__ import annotations

from dataclasses import replace

from idiolect.core import (
    UPLOAD,
    Batch,
    CarryingGradient,
    Clock,
    Flats,
    GradientFunction,
    Initial,
    Model,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    Slot,
    Structure,
    View,
    sgd,
)
from idiolect.core.part import keeps_options
from idiolect.errors import UserError, refuse_outside

__all__ = ["moreau_envelope"]

NAME = "moreau_envelope"


@keeps_options
def moreau_envelope(
    weight: float = 15.0,
    inner_steps: int = 5,
    inner_rate: float | None = None,
    outer_rate: float = 0.05,
    steps: int | None = None,
) -> Part:
    """Each local step solves for the personal model on one batch, then moves the shared one towards it.

    Args:
        weight: lambda >= 0; eta * lambda should not exceed 1.
        inner_steps: K >= 1.
        inner_rate: eta_p >= 0; eta_p (lambda + curvature of f) must stay below 2.  None takes the scene's learning
            rate, at most 1 / lambda.
        outer_rate: eta >= 0.
        steps: R local steps; None makes the scene's local epochs.

    Deviations: the personal model goes on from step to step and starts from the received model in each round.
    Plain steps, whatever the scene's optimiser, momentum and weight decay.
    """
    refuse_outside("weight (lambda)", weight, 0)
    refuse_outside("inner_steps (K)", inner_steps, 1)
    if inner_rate is not None:
        refuse_outside("inner_rate (eta_p)", inner_rate, 0)
    refuse_outside("outer_rate (eta)", outer_rate, 0)
    if steps is not None:
        refuse_outside("steps (R)", steps, 1)

    inside = "the scene's learning rate" if inner_rate is None else f"{inner_rate:g}"

    def init_client(initial: Initial) -> Flats:
        return {"params": initial.params, "buffers": initial.buffers}

    def check(structure: Structure, scene: Scene) -> None:
        if scene.learning_rate == 0:
            raise UserError(f"{NAME} has rates of its own and needs a scene whose learning_rate is above 0")
        if not scene.uses_sgd and inner_rate is None:
            raise UserError(
                f"{NAME} makes plain steps, about whose length a learning rate for {scene.optimiser} says nothing; "
                "set optimiser to sgd, or inner_rate"
            )

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        scale = outer_rate / clock.learning_rate
        before = tuple(
            replace(s, optimiser=sgd(), lr_scale=scale, steps=steps) if s.measure is None else s
            for s in plan.before
        )
        return plan._replace(before=before)

    def step_inside(view: View) -> float:
        if inner_rate is not None:
            return inner_rate
        most = 1 / (weight * view.scene.learning_rate) if weight else 1.0
        return view.clock.learning_rate * min(most, 1.0)

    def carry(params: Flats, view: View) -> Flats:
        return {"personal": params["model"]}

    def gradient(inner: GradientFunction, view: View) -> CarryingGradient:
        rate = step_inside(view)

        def towards(
            params: Flats, buffers: Flats, batches: tuple[Batch, ...], carry: Slot
        ) -> tuple[Flats, Flats, Slot]:
            shared, personal = params["model"], carry["personal"]
            for _ in range(inner_steps):
                grads, buffers = inner({**params, "model": personal}, buffers, batches)
                solved = {
                    name: personal[name] - rate * (g + weight * (personal[name] - shared[name]))
                    for name, g in grads["model"].items()
                }
                personal = {**personal, **solved}
            pull = {name: weight * (shared[name] - personal[name]) for name in grads["model"]}
            return {**grads, "model": pull}, buffers, {"personal": personal}

        return towards

    def finish(results: Results, view: View) -> Flats:
        trained = results[UPLOAD]
        return {"params": trained.carry[NAME]["personal"], "buffers": trained.buffers["model"]}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        return {"companion": Predictor.of(Model(**view.private))}

    return Part(
        NAME,
        init_client=init_client,
        check=check,
        stages=stages,
        carry=carry,
        gradient=gradient,
        finish=finish,
        predictors=predictors,
        roles=("gradient rule", "main stage", "companion predictor"),
        headline="companion",
        overrides=(f"plain steps of size {outer_rate:g} outside and {inside} inside",),
    )
