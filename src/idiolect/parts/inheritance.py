"""The inherited private model (HPM): a moving average of a client's own local models.

theta_p <- (1 - mu_k) thetahat + mu_k theta_p
Mu-A  mu_k = mu z_k / (Q T)     z_k selections of client k, Q participation rate, T rounds
Mu-B  mu_k = mu
Mu-C  mu_k = t / T
Li et al., ECML-PKDD 2021 (FedPHP), eq. (5) and table 2; Li et al., TKDE 2024 (MAP), eq. (10)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from idiolect.core import (
    Batch,
    Clock,
    Flat,
    Flats,
    Forward,
    Initial,
    Mode,
    Model,
    Out,
    Predictor,
    Result,
    Results,
    Slot,
    Stage,
    Trees,
    View,
)
from idiolect.core.measures import recalibration
from idiolect.core.trees import interpolate
from idiolect.errors import refuse_outside, refuse_unknown_choice

__all__ = ["SCHEDULES", "Inheritance"]


def mu_a(selections: Tensor, clock: Clock, momentum: float) -> Tensor:
    return momentum * selections / (clock.participation_rate * clock.rounds)


def mu_b(selections: Tensor, clock: Clock, momentum: float) -> Tensor:
    return torch.full_like(selections, momentum)


def mu_c(selections: Tensor, clock: Clock, momentum: float) -> Tensor:
    return torch.full_like(selections, clock.round / clock.rounds)


SCHEDULES: dict[str, Callable[[Tensor, Clock, float], Tensor]] = {"mu_a": mu_a, "mu_b": mu_b, "mu_c": mu_c}


@dataclass(frozen=True)
class Inheritance:
    """What the parts with an HPM have in common; the part's slot holds the HPM and its counter.

    Args:
        momentum: mu in [0, 1].
        schedule: ``mu_a``, ``mu_b`` or ``mu_c``.
        momentum_max: upper clip of mu_k in [0, 1].
        hpm_init: ``lazy``: the first selection creates the HPM and sees no transfer; ``theta0``: it is a copy
            of the initial model from the beginning.
        hpm_statistics: of normalisation layers: ``ema`` averages them, ``recompute`` passes over the training
            split.
        keep_last: also keeps the last local model, for inference with it.
        counter: z_k of ``mu_a`` is read ``before`` the present selection is counted (algorithm 1 and the authors'
            code: mu_k is adjusted after the HPM) or ``after`` (z_t = z_{t-1} + 1 in FedPHP's section 3.2).
    """

    momentum: float
    schedule: str
    momentum_max: float
    hpm_init: str
    hpm_statistics: str
    keep_last: bool = False
    counter: str = "before"

    def __post_init__(self) -> None:
        refuse_outside("momentum (mu)", self.momentum, 0, 1)
        refuse_outside("momentum_max", self.momentum_max, 0, 1)
        refuse_unknown_choice("schedule", self.schedule, SCHEDULES)
        refuse_unknown_choice("hpm_init", self.hpm_init, ("lazy", "theta0"))
        refuse_unknown_choice("hpm_statistics", self.hpm_statistics, ("ema", "recompute"))
        refuse_unknown_choice("counter", self.counter, ("before", "after"))

    def init_client(self, initial: Initial) -> Slot:
        model = {"params": initial.params, "buffers": initial.buffers}
        seen = torch.zeros_like(next(iter(initial.params.values())).sum())
        return {**model, "seen": seen, **({"last": model} if self.keep_last else {})}

    def teacher(self, view: View) -> Model:
        return Model(view.private["params"], view.private["buffers"])

    def exists(self, view: View) -> Tensor:
        """1 once there is an HPM to learn from, else 0; a newcomer has none, whatever ``hpm_init``."""
        seen = view.private["seen"]
        if view.clock.newcomer:
            return torch.zeros_like(seen)
        return torch.ones_like(seen) if self.hpm_init == "theta0" else (seen > 0).to(seen)

    def inherit(self, local: Result, view: View) -> Model:
        """The HPM after this round."""
        selections = view.private["seen"] + (1 if self.counter == "after" else 0)
        mu = SCHEDULES[self.schedule](selections, view.clock, self.momentum).clamp(0, self.momentum_max)
        mu = mu * self.exists(view)
        old = self.teacher(view)
        return Model(
            interpolate(local.params["model"], old.params, mu),
            interpolate(local.buffers["model"], old.buffers, mu),
        )

    def stages(self, owner: str, source: str) -> tuple[Stage, ...]:
        """The pass that recomputes statistics of the HPM inherited from the stage ``source``."""
        if self.hpm_statistics == "ema":
            return ()

        def start(received: Trees, results: Results, view: View) -> Trees:
            model = self.inherit(results[source], view)
            return {"model": model.params}, {"model": model.buffers}

        return (Stage("recompute", owner=owner, start=start, measure=recalibration()),)

    def slot(self, results: Results, source: str, view: View) -> Slot:
        local = results[source]
        model = self.inherit(local, view)
        buffers: Flat = model.buffers
        if self.hpm_statistics == "recompute":
            buffers = results["recompute"].measured["buffers"]
        slot = {"params": model.params, "buffers": buffers, "seen": view.private["seen"] + 1}
        if self.keep_last:
            slot["last"] = {"params": local.params["model"], "buffers": local.buffers["model"]}
        return slot

    def predictors(self, view: View, results: Results | None) -> dict[str, Predictor]:
        hpm = self.teacher(view)
        found = {"companion": Predictor.of(hpm)}
        if self.keep_last:
            last = Model(**view.private["last"])
            found["after-local"] = Predictor.of(last)
            found["ensemble"] = Predictor(
                {"model": hpm.params, "last": last.params},
                {"model": hpm.buffers, "last": last.buffers},
                _ensemble(view),
            )
        return found


def _ensemble(view: View) -> Forward:
    """Mean of the softmax probabilities of the HPM and of the last local model."""

    def forward(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
        outs = [view.predict(Model(params[tree], buffers[tree]), batch) for tree in ("model", "last")]
        one, other = (out.logits.log_softmax(-1) for out in outs)
        return Out(outs[0].features, torch.logaddexp(one, other) - math.log(2)), buffers

    return forward
