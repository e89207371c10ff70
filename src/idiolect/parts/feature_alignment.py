"""Feature alignment: a client first bends the received body towards the features of its own last model (FedAS).

p_c = mean feature of class c under the client's last model, over its training data
theta_B <- theta_B - eta d/dtheta_B sum_{c in batch} mean_{i: y_i = c, dim} (f(x_i; theta_B) - p_c)^2
before local training, which starts at the body that results and the client's own head
Yang, Huang, Ye, CVPR 2024 (federated parameter-alignment)
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from idiolect.core import (
    Batch,
    Clock,
    Flat,
    Flats,
    Initial,
    Loss,
    Out,
    Part,
    Plan,
    Results,
    Scene,
    Stage,
    Trees,
    View,
    as_received,
    sgd,
)
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside
from idiolect.parts.class_prototypes import class_sums
from idiolect.parts.private_layers import own_units

__all__ = ["feature_alignment"]

NAME = "feature_alignment"
ALIGN = "alignment"
MEASURE = "own features"


@keeps_options
def feature_alignment(epochs: float = 1, lr_scale: float = 1.0, count: int = 1) -> Part:
    """Adds epochs before local training that make the received body see each class where the client saw it last.

    Args:
        epochs: >= 0 of the alignment.
        lr_scale: >= 0, times the scene's learning rate; its steps have neither momentum nor weight decay.
        count: units >= 0 of the head, counted from the output, which the alignment leaves alone.

    Deviations: the mean features are taken when a client has trained, and kept until it is selected again; the model
    and the data are then the same as they would be later.  At its first selection there is nothing to align to.
    """
    refuse_outside("epochs", epochs, 0)
    refuse_outside("lr_scale", lr_scale, 0)
    refuse_outside("count", count, 0)

    def init_client(initial: Initial) -> Flat:
        structure, like = initial.structure, next(iter(initial.params.values()))
        means = like.new_zeros(structure.n_classes, structure.n_features)
        return {"means": means, "seen": torch.zeros_like(like.sum())}

    def objective(view: View) -> Loss:
        wanted = view.private["means"]
        known = (view.facts.class_counts > 0) & (view.private["seen"] > 0)

        def apart(params: Flats, batch: Batch, out: Out) -> Tensor:
            member = (batch.y[:, None] == torch.arange(len(known), device=batch.y.device)) * batch.mask[
                :, None
            ]
            gaps = ((out.features - wanted[batch.y]) ** 2).mean(-1)
            by_class = (member * gaps[:, None]).sum(0) / member.sum(0).clamp(min=1)
            return torch.where(known, by_class, 0).sum()

        return apart

    def from_aligned(received: Trees, results: Results, view: View) -> Trees:
        aligned = results[ALIGN]
        return {**received[0], "model": aligned.params["model"]}, {
            **received[1],
            "model": aligned.buffers["model"],
        }

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        align = Stage(
            ALIGN,
            NAME,
            as_received,
            objective,
            epochs=epochs,
            lr_scale=lr_scale,
            trainable=own_units(count, "input"),
            stream=ALIGN,
            optimiser=sgd(),
        )
        first = next(stage for stage in plan.before if stage.measure is None)
        before = (replace(s, start=from_aligned) if s is first else s for s in plan.before)
        return plan._replace(before=(align, *before, Stage(MEASURE, NAME, measure=class_sums())))

    def finish(results: Results, view: View) -> Flat:
        found = results[MEASURE].measured
        means = found["sum"] / found["count"].clamp(min=1)[:, None]
        return {"means": means, "seen": view.private["seen"] + 1}

    return Part(
        NAME,
        init_client=init_client,
        stages=stages,
        finish=finish,
        needs_classes=True,
        needs_head=True,
        roles=("round start",),
    )
