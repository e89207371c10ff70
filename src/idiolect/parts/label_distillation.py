"""Label distillation: clients share nothing but their mean prediction for each label (federated distillation, FD).

up      P_kc = mean of sigma(z_i) over the rows i of class c of client k
server  sums them over the round's clients;   teacher of k:  Q_kc = mean of P_jc over the others, j != k
local   CE(sigma(z_i), y_i) + gamma CE(Q_k,y_i, sigma(z_i)),   the second term where another client holds the label
Jeong, Oh, Kim, Park, Bennis, Kim 2018, algorithm 1, https://arxiv.org/abs/1811.11479
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import (
    Batch,
    Clock,
    Flat,
    Flats,
    Initial,
    Loss,
    Measure,
    Message,
    Model,
    Out,
    Part,
    Plan,
    Results,
    Scene,
    Stage,
    View,
)
from idiolect.core.masked_mean import mean_over_rows
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside

__all__ = ["label_distillation"]

NAME = "label_distillation"
STAGE = "mean predictions"


def prediction_sums() -> Measure:
    """Measures the sum of the predicted probabilities [K, K] and the number of rows [K] of every label."""

    def init(model: Model, view: View) -> Flat:
        k, zero = view.task.structure.n_classes, view.facts.samples.new_zeros
        return {"sum": zero(k, k), "rows": zero(k)}

    def add(sums: Flat, model: Model, batch: Batch, view: View) -> Flat:
        predicted = view.predict(model, batch).logits.softmax(-1)
        labels = torch.arange(predicted.shape[-1], device=batch.y.device)
        member = (batch.y[:, None] == labels).to(predicted) * batch.mask[:, None]
        return {"sum": sums["sum"] + member.T @ predicted, "rows": sums["rows"] + member.sum(0)}

    return Measure(init, add)


@keeps_options
def label_distillation(weight: float = 1.0) -> Part:
    """Each client learns from what the others predict on average for the label of a row.

    Args:
        weight: gamma >= 0.

    Deviations: the means are those of the trained model; the paper's are of each row as it is trained on.  The others
    are those of the last round in which somebody held the label, and a client that was not among them is taught by
    all of them.  A client leaves its own mean out itself; in the paper the server does, which then tells clients apart.
    """
    refuse_outside("weight (gamma)", weight, 0)

    def init_server(shared: Flat, initial: Initial) -> Flat:
        k, like = initial.structure.n_classes, next(iter(initial.params.values()))
        return {"sum": like.new_zeros(k, k), "round": like.new_zeros(k) - 1}

    def init_client(initial: Initial) -> Flat:
        k, like = initial.structure.n_classes, next(iter(initial.params.values()))
        return {"mean": like.new_zeros(k, k), "round": like.new_zeros(()) - 2}

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        return plan._replace(before=(*plan.before, Stage(STAGE, NAME, measure=prediction_sums())))

    def loss(inner: Loss, view: View) -> Loss:
        if not weight:
            return inner
        took_part = (view.server["round"] == view.private["round"]).to(view.facts.samples)
        others = view.server["sum"] - took_part[:, None] * view.private["mean"]
        count = others.sum(-1)  # of the clients: a row of probabilities sums to 1
        known, teachers = count > 0.5, others / count.clamp(min=0.5)[:, None]

        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            apart = -(teachers[batch.y] * out.logits.log_softmax(-1)).sum(-1)
            taught = mean_over_rows(apart * known[batch.y].to(apart), batch.mask)
            return inner(params, batch, out) + weight * taught

        return total

    def means(results: Results) -> Flat:
        """Returns a client's mean predictions; the row of a label that it does not hold is 0."""
        found = results[STAGE].measured
        return {"mean": found["sum"] / found["rows"].clamp(min=1)[:, None]}

    def upload(results: Results, view: View) -> Message:
        return Message(means(results), torch.ones_like(view.facts.weight))

    def scalars(value: Flat) -> int:
        """Counts the rows of labels that are held, and the name of each."""
        return int((value["mean"].sum(-1) > 0.5).sum()) * (int(value["mean"].shape[-1]) + 1)

    def merge(params: Flat, slot: Flat, mean: Flat, clock: Clock) -> tuple[Flat, Flat]:
        total = mean["mean"] * clock.cohort_size
        heard = total.sum(-1) > 0.5
        return params, {
            "sum": torch.where(heard[:, None], total, slot["sum"]),
            "round": torch.where(heard, torch.full_like(slot["round"], clock.round), slot["round"]),
        }

    def finish(results: Results, view: View) -> Flat:
        return {**means(results), "round": torch.full_like(view.private["round"], view.clock.round)}

    return Part(
        NAME,
        init_server=init_server,
        init_client=init_client,
        stages=stages,
        loss=loss,
        upload=upload,
        scalars=scalars,
        merge=merge,
        finish=finish,
        broadcasts=True,
        mean_alone="has each client subtract its own mean from the sum of all",
        needs_classes=True,
    )
