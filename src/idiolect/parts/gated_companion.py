"""Gated companion: a private model mixed with the shared one, example by example (FLDA).

z = a(x) z_g + (1 - a(x)) z_p,    a(x) = sigmoid(v . h_g(x) + b)
Peterson, Kanani, Marathe 2019, https://arxiv.org/abs/1912.06733
"""

from __future__ import annotations

import torch

from idiolect.core import (
    UPLOAD,
    Batch,
    Flats,
    Forward,
    Initial,
    Mode,
    Out,
    Part,
    Predictor,
    Results,
    Slot,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside, refuse_unknown_choice

__all__ = ["gated_companion"]

NAME = "gated_companion"


@keeps_options
def gated_companion(companion_init: str = "fresh", fixed_gate: float | None = None) -> Part:
    """Shared model, private model and gate are trained jointly on the mixture; the shared one is averaged.

    Args:
        companion_init: ``fresh`` (the client's own seed) or ``copy`` (the initial model).
        fixed_gate: a constant a in [0, 1] in place of the gate, for study.

    Deviations: the gate reads the shared model's features and mixes logits, as in the MAP authors' code; the
    original gates on x and mixes predictions.
    """
    refuse_unknown_choice("companion_init", companion_init, ("fresh", "copy"))
    if fixed_gate is not None:
        refuse_outside("fixed_gate", fixed_gate, 0, 1)

    def init_client(initial: Initial) -> Slot:
        own = initial.params if companion_init == "copy" else initial.draw(NAME, True).params
        zero = next(iter(initial.params.values())).new_zeros
        gate = {"v": zero(initial.structure.n_features), "b": zero(())}
        return {"own": own, "buffers": initial.buffers, "gate": gate}

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        slot = view.private
        return {**params, "own": slot["own"], "gate": slot["gate"]}, {**buffers, "own": slot["buffers"]}

    def forward(inner: Forward, view: View) -> Forward:
        def mixed(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            ours, new = inner({"model": params["model"]}, {"model": buffers["model"]}, batch, train)
            mine, own = inner({"model": params["own"]}, {"model": buffers["own"]}, batch, train)
            gate = torch.sigmoid(ours.features @ params["gate"]["v"] + params["gate"]["b"])[:, None]
            if fixed_gate is not None:
                gate = torch.full_like(gate, fixed_gate)
            logits = gate * ours.logits + (1 - gate) * mine.logits
            return ours._replace(logits=logits), {"model": new["model"], "own": own["model"]}

        return mixed

    def finish(results: Results, view: View) -> Slot:
        trained = results[UPLOAD]
        gate = trained.params["gate"]
        return {"own": trained.params["own"], "buffers": trained.buffers["own"], "gate": gate}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        slot = view.private
        params = {"model": view.current.params, "own": slot["own"], "gate": slot["gate"]}
        buffers = {"model": view.current.buffers, "own": slot["buffers"]}
        return {"composed": Predictor(params, buffers, forward(view.task.bare, view))}

    return Part(
        NAME,
        needs_head=True,
        init_client=init_client,
        start=start,
        forward=forward,
        finish=finish,
        predictors=predictors,
        roles=("companion training", "main predictor", "composed predictor"),
        headline="composed",
    )
