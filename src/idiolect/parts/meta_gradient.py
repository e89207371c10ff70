"""Meta-gradient: the shared model is trained to be good after one step of adaptation (Per-FedAvg).

w~ = w - a grad f(w; D);   FO: w <- w - b grad f(w~; D')
HF: w <- w - b [g' - a (grad f(w + d g'; D'') - grad f(w - d g'; D'')) / 2d],   g' = grad f(w~; D')
Fallah, Mokhtari, Ozdaglar, NeurIPS 2020, https://arxiv.org/abs/2002.07948
"""

from __future__ import annotations

from dataclasses import replace

from idiolect.core import (
    Batch,
    CarryingGradient,
    Clock,
    Flat,
    Flats,
    GradientFunction,
    Loss,
    Model,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    Slot,
    Stage,
    Structure,
    View,
    as_received,
    sgd,
)
from idiolect.core.optimiser import scale_without_momentum
from idiolect.core.part import keeps_options
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice

__all__ = ["meta_gradient"]

NAME = "meta_gradient"
BATCHES = {"first_order": 2, "hessian_free": 3}


def _moved(params: Flat, step: float, grads: Flat) -> Flat:
    return {**params, **{name: params[name] + step * g for name, g in grads.items()}}


@keeps_options
def meta_gradient(
    form: str = "first_order",
    inner_rate: float | None = None,
    outer_rate: float | None = None,
    difference: float = 1e-3,
    adapt_steps: int = 1,
) -> Part:
    """Evaluates the gradient at the adapted point and applies it to the model itself.

    Args:
        form: ``first_order`` (two batches a step) or ``hessian_free`` (three).
        inner_rate: a >= 0; None takes the scene's learning rate.
        outer_rate: b >= 0; None takes the scene's learning rate times 1 / sqrt(1 - momentum), which makes up for the
            scene's momentum that the plain outer steps lack.
        difference: d > 0 of the Hessian-vector product.
        adapt_steps: gradient steps with rate a, on training data, that make the personal model at the end.

    Deviations: none.  Inner steps are stateless, outer steps plain SGD whatever the scene's optimiser; an epoch
    has as many steps as it has pairs (or triples) of batches.
    """
    refuse_unknown_choice("form", form, BATCHES)
    if inner_rate is not None:
        refuse_outside("inner_rate (a)", inner_rate, 0)
    if outer_rate is not None:
        refuse_outside("outer_rate (b)", outer_rate, 0)
    refuse_outside("difference (d)", difference, 1e-9)
    refuse_outside("adapt_steps", adapt_steps, 0)

    outside = (
        "1 / sqrt(1 - momentum) times the scene's rate" if outer_rate is None else f"size {outer_rate:g}"
    )
    inside = "the scene's learning rate" if inner_rate is None else f"rate {inner_rate:g}"

    def objective(view: View) -> Loss:
        return view.task.criterion

    def check(structure: Structure, scene: Scene) -> None:
        if scene.learning_rate == 0:
            raise UserError(f"{NAME} has rates of its own and needs a scene whose learning_rate is above 0")
        if not scene.uses_sgd and None in (inner_rate, outer_rate):
            raise UserError(
                f"{NAME} makes plain steps, about whose length a learning rate for {scene.optimiser} says nothing; "
                "set optimiser to sgd, or inner_rate and outer_rate"
            )

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        outer = (
            outer_rate / clock.learning_rate
            if outer_rate is not None
            else scale_without_momentum(scene.momentum)
        )
        before = tuple(
            replace(s, batches_per_step=BATCHES[form], optimiser=sgd(), lr_scale=outer)
            if s.measure is None
            else s
            for s in plan.before
        )
        inner = 1.0 if inner_rate is None else inner_rate / clock.learning_rate
        adapt = Stage(
            "adapt",
            NAME,
            as_received,
            objective,
            steps=adapt_steps,
            lr_scale=inner,
            optimiser=sgd(),
            stream="adapt",
        )
        return plan._replace(before=before, end=(*plan.end, adapt))

    def gradient(inner: GradientFunction, view: View) -> CarryingGradient:
        rate = view.clock.learning_rate if inner_rate is None else inner_rate

        def at(params: Flats, step: float, along: Flat, buffers: Flats, batch: Batch) -> tuple[Flats, Flats]:
            return inner({**params, "model": _moved(params["model"], step, along)}, buffers, (batch,))

        def meta(
            params: Flats, buffers: Flats, batches: tuple[Batch, ...], carry: Slot
        ) -> tuple[Flats, Flats, Slot]:
            first, _ = inner(params, buffers, batches[:1])
            grads, new = at(params, -rate, first["model"], buffers, batches[1])
            if form == "hessian_free":
                up, _ = at(params, difference, grads["model"], buffers, batches[2])
                down, _ = at(params, -difference, grads["model"], buffers, batches[2])
                scale = rate / (2 * difference)
                curved = {
                    name: g - scale * (up["model"][name] - down["model"][name])
                    for name, g in grads["model"].items()
                }
                grads = {**grads, "model": curved}
            return grads, new, carry

        return meta

    def personalise(results: Results, view: View) -> Flats:
        adapted = results["adapt"]
        return {"params": adapted.params["model"], "buffers": adapted.buffers["model"]}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        return {"LU": Predictor.of(Model(**view.private))} if view.private else {}

    return Part(
        NAME,
        check=check,
        stages=stages,
        gradient=gradient,
        personalise=personalise,
        predictors=predictors,
        roles=("gradient rule", "main stage", "tuned predictor"),
        headline="LU",
        overrides=(f"plain steps of {outside}, adaptation with {inside}",),
    )
