"""Component mixture: M shared models, and on each client the shares in which its data came from them (FedEM).

E-step    q_i(m) = pi_m exp(-l(h_m(x_i), y_i)) / sum_m' pi_m' exp(-l(h_m'(x_i), y_i)),   h_m as received
          pi_m <- 1/n sum_i q_i(m)
M-step    theta_m: local training on 1/n sum_i q_i(m) l(h_m(x_i), y_i),   then averaged over clients
predicts  p(y | x) = sum_m pi_m p_m(y | x)
Marfoq, Neglia, Bellet, Kameni, Vidal, NeurIPS 2021, algorithm 1 and eqs. (9)-(11), https://arxiv.org/abs/2108.10252
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Clock,
    Flat,
    Flats,
    Forward,
    Initial,
    Loss,
    Measure,
    Message,
    Mode,
    Model,
    Out,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    Slot,
    Stage,
    Task,
    View,
)
from idiolect.core.masked_mean import mean_over_rows
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside
from idiolect.parts.average import average

__all__ = ["component_mixture", "responsibilities"]

NAME = "component_mixture"
STAGE = "responsibilities"


def responsibilities(shares: Tensor, losses: Tensor) -> Tensor:
    """Returns q [B, M] from shares pi [M] and losses [B, M]; a component without a share gets none."""
    return torch.softmax(torch.log(shares) - losses, -1)


def losses_of(logits: Tensor, batch: Batch) -> Tensor:
    """Returns -log p_m(y | x) of every row, [B, M], from logits [B, M, K]."""
    labels = batch.y[:, None, None].expand(-1, logits.shape[1], 1)
    return -torch.log_softmax(logits, -1).gather(-1, labels).squeeze(-1)


def mixed(logits: Tensor, shares: Tensor) -> Tensor:
    """Returns log sum_m pi_m p_m(y | x), [B, K], from logits [B, M, K]."""
    return torch.logsumexp(torch.log(shares)[:, None] + torch.log_softmax(logits, -1), -2)


@keeps_options
def component_mixture(components: int = 3) -> Part:
    """Every client trains all components, each on the rows in proportion to how well the component explains them.

    Args:
        components: M >= 1; the first is the main model, and 1 is FedAvg.

    Deviations: the responsibilities of a row are computed whenever a batch holds it, from the components as received,
    which gives what the paper computes once before training; with augmentation they are those of the augmented row.
    Shares pi follow the components of the round that a client last took part in.  A newcomer learns its shares alone,
    as the paper's unseen clients do, in one E-step.
    """
    refuse_outside("components (M)", components, 1)
    plain = average()
    others = [f"component {m}" for m in range(2, components + 1)]

    def init_server(shared: Flat, initial: Initial) -> Slot:
        return {name: initial.draw(f"{NAME} {name}", False)._asdict() for name in others}

    def init_client(initial: Initial) -> Slot:
        shares = next(iter(initial.params.values())).new_full((components,), 1 / components)
        buffers = {name: initial.draw(f"{NAME} {name}", False).buffers for name in others}
        return {"shares": shares, "buffers": buffers}

    def statistics(view: View) -> Flats:
        """Returns the running statistics that the other components begin with."""
        own: Flats = view.private["buffers"]
        return own if view.scene.buffers == "private" else {n: view.server[n]["buffers"] for n in others}

    def received(view: View) -> tuple[Flats, Flats]:
        params = {"model": view.received.params, **{n: view.server[n]["params"] for n in others}}
        return params, {"model": view.received.buffers, **statistics(view)}

    def all_logits(
        forward: Forward, params: Flats, buffers: Flats, batch: Batch, train: Mode
    ) -> tuple[Out, Tensor, Flats]:
        """Returns the output of the first component, the logits of all [B, M, K], and new buffers."""
        first, new = forward({"model": params["model"]}, {"model": buffers["model"]}, batch, train)
        logits, buffers = [first.logits], {**buffers, **new}
        for name in others:
            out, new = forward({"model": params[name]}, {"model": buffers[name]}, batch, train)
            logits.append(out.logits)
            buffers[name] = new["model"]
        return first, torch.stack(logits, 1), buffers

    def explained(view: View, batch: Batch) -> Tensor:
        """Returns the responsibilities of the rows of a batch, [B, M]."""
        _, logits, _ = all_logits(view.task.bare, *received(view), batch, False)
        return responsibilities(view.private["shares"], losses_of(logits, batch))

    def shares_measured() -> Measure:
        def init(model: Model, view: View) -> Slot:
            zero = torch.zeros_like(view.facts.samples)
            return {"sum": zero.expand(components).clone(), "rows": zero}

        def add(sums: Slot, model: Model, batch: Batch, view: View) -> Slot:
            q = explained(view, batch) * batch.mask[:, None]
            return {"sum": sums["sum"] + q.sum(0), "rows": sums["rows"] + batch.mask.sum()}

        return Measure(init, add)

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        before = plan.before
        if clock.newcomer:
            before = tuple(s if s.measure else replace(s, steps=0, has_minimum=False) for s in before)
        return plan._replace(before=(Stage(STAGE, NAME, measure=shares_measured()), *before))

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        more = {n: view.server[n]["params"] for n in others}
        return {**params, **more}, {**buffers, **statistics(view)}

    def forward(inner: Forward, view: View) -> Forward:
        def all_components(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            first, logits, new = all_logits(inner, params, buffers, batch, train)
            return first._replace(extra={**first.extra, NAME: logits}), new

        return all_components

    def criterion(inner: Loss, view: View) -> Loss:
        def weighted(params: Flats, batch: Batch, out: Out) -> Tensor:
            each = explained(view, batch) * losses_of(out.extra[NAME], batch)
            return mean_over_rows(each.sum(-1), batch.mask)

        return weighted

    def upload(results: Results, view: View) -> Message:
        assert plain.upload
        trained, message = results[UPLOAD], plain.upload(results, view)
        statistics = trained.buffers if view.scene.buffers == "average" else {}
        more = {n: {"params": trained.params[n], "buffers": statistics.get(n, {})} for n in others}
        return message._replace(value={**message.value, **more})

    def merge(params: Flat, slot: Slot, mean: Slot, clock: Clock) -> tuple[Flat, Slot]:
        main = {name: mean[name] for name in params}
        return main, {n: {**slot[n], **mean[n]} for n in others}

    def finish(results: Results, view: View) -> Slot:
        measured, trained = results[STAGE].measured, results[UPLOAD]
        shares = measured["sum"] / measured["rows"].clamp(min=1)
        kept = torch.where(measured["rows"] > 0, shares, view.private["shares"])
        return {"shares": kept, "buffers": {n: trained.buffers[n] for n in others}}

    def predicting(task: Task, shares: Tensor) -> Forward:
        def forward(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            first, logits, new = all_logits(task.bare, params, buffers, batch, train)
            return first._replace(logits=mixed(logits, shares)), new

        return forward

    def shared_model(model: Model, slot: Slot, task: Task) -> Predictor:
        params = {"model": model.params, **{n: slot[n]["params"] for n in others}}
        buffers = {"model": model.buffers, **{n: slot[n]["buffers"] for n in others}}
        shares = next(iter(model.params.values())).new_full((components,), 1 / components)
        return Predictor(params, buffers, predicting(task, shares))

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        params, buffers = received(view)
        alike = torch.full_like(view.private["shares"], 1 / components)
        everybody = Predictor(params, buffers, predicting(view.task, alike))
        if results:
            params, buffers = results[UPLOAD].params, results[UPLOAD].buffers
        own = Predictor(params, buffers, predicting(view.task, view.private["shares"]))
        return {"global": everybody, "mix(pi)": own}

    def remarks(view: View) -> dict[str, Tensor]:
        return {f"pi({m + 1})": view.private["shares"][m] for m in range(components)}

    return plain._replace(
        name=NAME,
        init_server=init_server,
        init_client=init_client,
        start=start,
        stages=stages,
        forward=forward,
        criterion=criterion,
        upload=upload,
        merge=merge,
        finish=finish,
        predictors=predictors,
        shared_model=shared_model,
        remarks=remarks,
        broadcasts=True,
        needs_classes=True,
        needs_whole=True,
        roles=("server update", "uploaded models", "companion training", "main predictor", "logit map"),
        headline="mix(pi)",
        gives_way=False,
    )
