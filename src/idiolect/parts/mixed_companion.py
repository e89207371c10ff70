"""Mixed companion: a private model and its mixture with the shared one (APFL).

vbar = alpha v + (1 - alpha) w
w <- w - eta grad f(w);   v <- v - eta alpha grad f(vbar);   alpha <- clip(alpha - eta <v - w, grad f(vbar)>, 0, 1)
Deng, Kamani, Mahdavi 2020, algorithm 1, https://arxiv.org/abs/2003.13461
"""

from __future__ import annotations

import torch

from idiolect.core import (
    UPLOAD,
    Batch,
    CarryingGradient,
    Flats,
    GradientFunction,
    Initial,
    Model,
    Part,
    Predictor,
    Results,
    Scene,
    Slot,
    Structure,
    View,
    sgd,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import inner_product, interpolate, zeros_like
from idiolect.errors import UserError, refuse_outside

__all__ = ["mixed_companion"]

NAME = "mixed_companion"


@keeps_options
def mixed_companion(alpha: float = 0.5, learned: bool = False, shared_first: bool = False) -> Part:
    """Trains the private model through the mixture, on the batches of the shared one.

    Args:
        alpha: in [0, 1], share of the private model in the mixture (its first value when learned).
        learned: each client learns its own alpha.
        shared_first: the mixture takes the shared model after its step, not before.

    The scene's optimiser moves both models; alpha is learned by plain steps.  ``shared_first`` needs SGD.

    Deviations: none.  The mixture's normalisation statistics are its own.
    """
    refuse_outside("alpha", alpha, 0, 1)

    def check(structure: Structure, scene: Scene) -> None:
        if shared_first and not scene.uses_sgd:
            raise UserError(
                f"{NAME}: shared_first looks ahead by a step of SGD, and the scene has optimiser={scene.optimiser}; "
                "set optimiser to sgd or shared_first to False"
            )

    def init_client(initial: Initial) -> Slot:
        weight = torch.full_like(next(iter(initial.params.values())).sum(), alpha)
        return {"params": initial.params, "buffers": initial.buffers, "alpha": weight}

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        own = view.private
        return {**params, "own": own["params"]}, {**buffers, "own": own["buffers"]}

    def carry(params: Flats, view: View) -> Slot:
        step = zeros_like(params["model"]) if shared_first else {}
        return {"alpha": view.private["alpha"], "velocity": step}

    def gradient(inner: GradientFunction, view: View) -> CarryingGradient:
        scene, rate = view.scene, view.clock.learning_rate

        def both(
            params: Flats, buffers: Flats, batches: tuple[Batch, ...], carry: Slot
        ) -> tuple[Flats, Flats, Slot]:
            share, velocity = carry["alpha"], carry["velocity"]
            shared, own = params["model"], params["own"]
            pulled, stepped = inner({"model": shared}, {"model": buffers["model"]}, batches)
            base = shared
            if shared_first:
                optimiser = sgd(scene.momentum, scene.weight_decay, scene.clip_norm)
                trained = {"model": {name: shared[name] for name in pulled["model"]}}
                memory = (
                    {"model": {name: velocity[name] for name in pulled["model"]}} if scene.momentum else {}
                )
                moved, memory = optimiser.update(pulled, memory, trained, rate)
                base, velocity = {**shared, **moved["model"]}, {**velocity, **memory.get("model", {})}
            mixture = interpolate(base, own, share)
            mixed, mixed_buffers = inner({"model": mixture}, {"model": buffers["own"]}, batches)
            if learned:
                apart = {name: own[name] - base[name] for name in mixed["model"]}
                share = (share - rate * inner_product(apart, mixed["model"])).clamp(0, 1)
            through = {name: carry["alpha"] * g for name, g in mixed["model"].items()}
            new = {"model": stepped["model"], "own": mixed_buffers["model"]}
            return {"model": pulled["model"], "own": through}, new, {"alpha": share, "velocity": velocity}

        return both

    def finish(results: Results, view: View) -> Slot:
        trained = results[UPLOAD]
        alpha = trained.carry[NAME]["alpha"]
        return {"params": trained.params["own"], "buffers": trained.buffers["own"], "alpha": alpha}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        own = view.private
        mixture = interpolate(view.current.params, own["params"], own["alpha"])
        return {"mix(alpha)": Predictor.of(Model(mixture, own["buffers"]), recalibrate=True)}

    def remarks(view: View) -> dict[str, torch.Tensor]:
        return {"alpha": view.private["alpha"]}

    return Part(
        NAME,
        init_client=init_client,
        check=check,
        start=start,
        carry=carry,
        gradient=gradient,
        finish=finish,
        predictors=predictors,
        remarks=remarks,
        roles=("companion training", "main predictor", "gradient rule"),
        headline="mix(alpha)",
    )
