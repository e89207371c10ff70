"""Mixed subspace: a shared and a private model trained on the segment between them (SuPerFed).

w_alpha = (1 - alpha) w_g + alpha w_l,   alpha ~ U(0, 1) for every batch
CE(w_alpha) + beta cos^2(w_g, w_l) + gamma ||w_g - w_*||^2
Hahn, Jeong, Lee 2022, https://arxiv.org/abs/2109.07628
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Choice,
    Clock,
    Flat,
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
    Structure,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import inner_product, interpolate
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.parts.proximity import FORMS

__all__ = ["GRID", "mixed_subspace"]

NAME = "mixed_subspace"
GRID = tuple(a / 10 for a in range(11))
ALPHA = Choice(name="mix(validated)", family="mix(", oracle="mix(oracle)")


def _mix(shared: Flat, own: Flat, alphas: Tensor, structure: Structure) -> Flat:
    """Layer by layer ``(1 - alpha) shared + alpha own``; one alpha serves all layers, or each has its own."""
    per_layer = alphas.expand(len(structure.layers))
    return {
        name: (1 - per_layer[i]) * shared[name] + per_layer[i] * own[name]
        for i, layer in enumerate(structure.layers)
        for name in layer
    }


@keeps_options
def mixed_subspace(
    mixing: str = "model",
    orthogonality: float = 2.0,
    proximity: float = 0.01,
    phase_one: float = 0.4,
    own_init: str = "shared",
    fixed_alpha: float | None = None,
    proximity_form: str = "sq",
) -> Part:
    """In phase I only the shared model trains; in phase II both do, at a random point between them.

    Args:
        mixing: ``model``: one alpha for the whole model (MM); ``layer``: one for every layer (LM).
        orthogonality: beta >= 0, weight of cos^2 in phase II.
        proximity: gamma >= 0, weight of the squared distance to the received model, in both phases.
        phase_one: L/R in [0, 1], share of the rounds in phase I, which has floor(L/R R) rounds.
        own_init: ``shared``: one second initialisation for all clients (paper); ``client``: each its own.
        fixed_alpha: a constant in place of the draws, for study.
        proximity_form: ``sq`` (the paper), ``norm`` (the authors' code), ``sq_half`` or ``mean_smooth_l1``.

    Deviations: none.  With batch normalisation the statistics in training are the mixture's; evaluation
    recomputes them on the client's training split.
    """
    refuse_unknown_choice("mixing", mixing, ("model", "layer"))
    refuse_unknown_choice("own_init", own_init, ("shared", "client"))
    refuse_outside("orthogonality (beta)", orthogonality, 0)
    refuse_outside("proximity (gamma)", proximity, 0)
    refuse_outside("phase_one (L/R)", phase_one, 0, 1)
    refuse_unknown_choice("proximity_form", proximity_form, FORMS)
    if fixed_alpha is not None:
        refuse_outside("fixed_alpha", fixed_alpha, 0, 1)

    def mixes(clock: Clock) -> bool:
        first = math.floor(phase_one * clock.rounds + 1e-9)  # 0.29 * 100 is 28.999...
        return min(clock.round, clock.rounds - 1) >= first

    def init_client(initial: Initial) -> Flat:
        return initial.draw(NAME, own_init == "client").params

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        return ({**params, "own": view.private} if mixes(view.clock) else params), buffers

    def draws(structure: Structure) -> int:
        return 1 if mixing == "model" else len(structure.layers)

    def forward(inner: Forward, view: View) -> Forward:
        def mixed(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            if "own" not in params:
                return inner(params, buffers, batch, train)
            alphas = batch.draws[NAME]
            if fixed_alpha is not None:
                alphas = torch.full_like(alphas, fixed_alpha)
            mixture = _mix(params["model"], params["own"], alphas, view.task.structure)
            return inner({**params, "model": mixture}, buffers, batch, train)

        return mixed

    def loss(inner: Loss, view: View) -> Loss:
        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            shared = params["model"]
            value = inner(params, batch, out)
            if proximity:
                value = value + proximity * FORMS[proximity_form](shared, view.origin.params)
            if "own" not in params or not orthogonality:
                return value
            own = params["own"]
            norms = inner_product(shared, shared) * inner_product(own, own)
            return value + orthogonality * inner_product(shared, own) ** 2 / norms

        return total

    def finish(results: Results, view: View) -> Flat:
        return results[UPLOAD].params.get("own", view.private)

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        grid = GRID if mixes(view.clock) else (0.0,)
        shared, own = view.current, view.private
        return {
            f"mix({alpha:.1f})": Predictor.of(
                Model(interpolate(shared.params, own, alpha), shared.buffers), recalibrate=True
            )
            for alpha in grid
        }

    return Part(
        NAME,
        init_client=init_client,
        start=start,
        draws=draws,
        forward=forward,
        loss=loss,
        finish=finish,
        predictors=predictors,
        roles=("companion training", "main predictor"),
        headline=ALPHA.name,
        choices=(ALPHA,),
    )
