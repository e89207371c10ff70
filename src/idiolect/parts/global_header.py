"""Global header: the server trains the head on the mean features of the clients' classes (FedGH).

up      R_kc = mean of f_k(x) over the rows of class c, for every class that client k holds
server  phi <- phi - eta grad mean_{k, c} CE(h(R_kc; phi), c)
client  starts a round from its own extractor f_k and the received header h(.; phi), and trains both
Yi, Wang, Liu, Shi, Yu, ACM MM 2023, algorithm 1, https://arxiv.org/abs/2303.13137
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from idiolect.core import (
    Batch,
    Clock,
    Flats,
    Loss,
    Message,
    Model,
    Out,
    Part,
    Plan,
    Results,
    Scene,
    Slot,
    Stage,
    Structure,
    View,
    sgd,
)
from idiolect.core.masked_mean import mean_over_rows
from idiolect.core.part import keeps_options
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice
from idiolect.parts.class_prototypes import class_sums
from idiolect.parts.private_layers import kept_layers, own_units

__all__ = ["global_header"]

NAME = "global_header"
MEASURE = "class means"
TRAIN = "header"


@keeps_options
def global_header(steps: int = 100, learning_rate: float = 0.03, body_init: str = "shared") -> Part:
    """Keeps the extractor on the client; the server trains the last unit, and sees nothing but class means.

    Args:
        steps: >= 0.
        learning_rate: eta >= 0.
        body_init: of the extractors, ``shared`` or ``random``.

    Deviations: a step of the server is plain SGD on the mean loss of all class means; the paper takes them one after
    the other.  All extractors have one architecture.  What a client trained of the header is dropped, as in the paper:
    it is scored with its extractor and the header as received.
    """
    refuse_outside("steps", steps, 0)
    refuse_outside("learning_rate (eta)", learning_rate, 0)
    refuse_unknown_choice("body_init", body_init, ("shared", "random"))
    kept = kept_layers(own_units(1, "input"), body_init)

    def check(structure: Structure, scene: Scene) -> None:
        if structure.n_units - 1 in structure.frozen_units:
            raise UserError(f"{NAME} trains the last unit of the network, which is frozen; unfreeze it")

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        assert kept.stages
        plan = kept.stages(plan, scene, clock)
        measure = Stage(MEASURE, NAME, measure=class_sums())
        train = Stage(
            TRAIN,
            NAME,
            objective=objective,
            steps=steps,
            lr_scale=learning_rate,
            optimiser=sgd(),
            split="none",
        )
        return plan._replace(before=(*plan.before, measure), server=(*plan.server, train))

    def upload(results: Results, view: View) -> Message:
        found = results[MEASURE].measured
        means = found["sum"] / found["count"].clamp(min=1)[:, None]
        held = (found["count"] > 0).to(means)
        return Message({"means": means, "held": held}, torch.ones_like(view.facts.weight))

    def scalars(value: Slot) -> int:
        """Counts the means of the classes that a client holds, and the name of each."""
        return int(value["held"].sum()) * (int(value["means"].shape[-1]) + 1)

    def objective(view: View) -> Loss:
        means, held = view.uploads["params"]["means"], view.uploads["params"]["held"]  # [C, K, d], [C, K]
        labels = torch.arange(held.shape[1], device=held.device).expand(held.shape)

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            logits = view.task.head(params["model"], means.flatten(0, 1))
            each = F.cross_entropy(logits, labels.flatten(), reduction="none")
            return mean_over_rows(each, held.flatten())

        return total

    def serve(results: Results, view: View, model: Model) -> Model:
        return Model(results[TRAIN].params["model"], model.buffers)

    return kept._replace(
        name=NAME,
        private=own_units(1, "input"),
        check=check,
        stages=stages,
        upload=upload,
        scalars=scalars,
        serve=serve,
        individual=True,
        needs_classes=True,
        needs_head=True,
        roles=("server update", *kept.roles),
    )
