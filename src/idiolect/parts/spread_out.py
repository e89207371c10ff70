"""Spread-out classifier: after the average, the server pushes the classes' proxies apart (FedAwS).

min_W  1/K^2 sum_{c != c'} max(0, nu - d(w_c, w_c'))^2,    d = (1 - cos(w_c, w_c')) / 2
Yu et al., ICML 2020, https://arxiv.org/abs/2004.10342
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
    Model,
    Out,
    Part,
    Plan,
    Results,
    Scene,
    Stage,
    Structure,
    View,
    sgd,
)
from idiolect.core.part import keeps_options
from idiolect.errors import UserError, refuse_outside

__all__ = ["spread_loss", "spread_out"]

NAME = "spread_out"
STAGE = "spread"


def spread_loss(rows: Tensor, margin: float) -> Tensor:
    """Returns the mean over all K x K pairs of ``rows`` [K, d], in which a class paired with itself adds 0."""
    unit = F.normalize(rows, dim=-1)
    distance = (1 - unit @ unit.T) / 2
    others = 1 - torch.eye(len(rows), dtype=rows.dtype, device=rows.device)
    return ((margin - distance).clamp(min=0) ** 2 * others).mean()


@keeps_options
def spread_out(
    margin: float = 0.9, steps: int = 20, learning_rate: float = 1.0, momentum: float = 0.9
) -> Part:
    """Optimises the classifier's rows alone, on the server, without data.

    Args:
        margin: nu in [0, 1].
        steps: >= 0; 0 is FedAvg.
        learning_rate, momentum: of the server's SGD; the MAP authors pair (margin, steps, rate) as
            (0.9, 20, 1), (0.8, 30, 0.1) and (0.5, 50, 0.01).

    Deviations: the paper's clients hold examples of one class each and train with a loss on positives alone; here they
    train as in FedAvg.  Its server makes one step a round on the sum over pairs, times a multiplier lambda; here it
    makes ``steps`` steps of SGD with momentum on the mean over K x K pairs, to which the MAP authors' rates belong.  So
    a rate of 1 here moves the rows like a rate of 1/K^2 on the sum.  Row norms are free.
    """
    refuse_outside("margin (nu)", margin, 0, 1)
    refuse_outside("steps", steps, 0)
    refuse_outside("learning_rate", learning_rate, 0)
    refuse_outside("momentum", momentum, 0, 1)

    def check(structure: Structure, scene: Scene) -> None:
        if not structure.linear_head:
            raise UserError(
                "spread_out needs a network whose classifier is a single linear layer and trained"
            )

    def is_rows(name: str, structure: Structure) -> bool:
        return name == structure.classifier

    def objective(view: View) -> Loss:
        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            return spread_loss(params["model"][view.task.structure.classifier], margin)

        return total

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        spread = Stage(
            STAGE,
            NAME,
            objective=objective,
            steps=steps,
            lr_scale=learning_rate,
            trainable=is_rows,
            optimiser=sgd(momentum),
            split="none",
        )
        return plan._replace(server=(*plan.server, spread))

    def serve(results: Results, view: View, model: Model) -> Model:
        spread = results[STAGE]
        return Model(spread.params["model"], spread.buffers["model"])

    return Part(
        NAME,
        check=check,
        stages=stages,
        serve=serve,
        needs_classes=True,
        needs_head=True,
        needs_whole=True,
    )
