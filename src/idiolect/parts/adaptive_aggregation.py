"""Adaptive aggregation: a client begins a round between its own last model and the received one (FedALA).

theta^ = theta_k + (theta - theta_k) o W_k   in the last p units,    theta^ = theta   below them
W_k <- clip( W_k - eta (theta - theta_k) o dL(theta^)/dtheta^, 0, 1 )    batch by batch over a share s of the data
local training then starts at theta^;   W_k = 1 at first, and is kept from round to round
Zhang, Hua, Wang, Song, Xue, Ma, Guan, AAAI 2023, algorithm 1, https://arxiv.org/abs/2212.01197
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Clock,
    Flat,
    Flats,
    Initial,
    Loss,
    Model,
    Optimiser,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    Slot,
    Stage,
    Structure,
    Trees,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import pick, where
from idiolect.errors import UserError, refuse_outside
from idiolect.parts.private_layers import own_units

__all__ = ["adaptive_aggregation"]

NAME = "adaptive_aggregation"
STAGE = "aggregation"


def between(own: Flat, shared: Flat, weights: Flat) -> Flat:
    """theta_k + (theta - theta_k) o W, exactly theta_k where W is 0 and theta where it is 1."""
    return {name: torch.lerp(own[name], shared[name], weight) for name, weight in weights.items()}


def mixing_weights(rate: float) -> Optimiser:
    """Moves the weights by the chain rule, from the gradient of the mixture, and the mixture with them.

    The trees are ``model`` (the mixture), ``weights``, and the ends ``own`` and ``shared``, which stay.
    """

    def update(grads: Flats, memory: Slot, params: Flats, lr: float | Tensor) -> tuple[Flats, Slot]:
        own, shared = params["own"], params["shared"]
        weights = {
            name: (weight - rate * (shared[name] - own[name]) * grads["model"][name]).clamp(0, 1)
            for name, weight in params["weights"].items()
        }
        return {**params, "weights": weights, "model": between(own, shared, weights)}, memory

    return Optimiser(lambda params: {}, update)


@keeps_options
def adaptive_aggregation(count: int = 1, share: float = 0.8, rate: float = 1.0) -> Part:
    """Learns, element by element, how much of the received model a client takes into its last units.

    Args:
        count: p >= 0, units with weights counted from the output; 0 is FedAvg.
        share: s >= 0 of the client's batches, drawn anew in every round, that the weights are learned on.
        rate: eta >= 0 of the weights; 0 leaves them at 1, which is FedAvg.

    Deviations: the weights are learned once over the share of data in every round, also in the first, where the paper
    goes on until the loss settles.  Layers are counted whole: a count of tensors takes in a layer more where the
    classifier has no bias.  At its first selection a client has no model of its own and starts at the received one.
    """
    refuse_outside("count (p)", count, 0)
    refuse_outside("share (s)", share, 0)
    refuse_outside("rate (eta)", rate, 0)
    mixed = own_units(count)

    def check(structure: Structure, scene: Scene) -> None:
        if count > structure.n_units:
            raise UserError(
                f"{NAME}: count (p) is {count} but the network has {structure.n_units} units; choose fewer"
            )

    def init_client(initial: Initial) -> Slot:
        own = pick(initial.params, lambda name: mixed(name, initial.structure))
        weights = {name: torch.ones_like(tensor) for name, tensor in own.items()}
        return {
            "own": own,
            "weights": weights,
            "seen": torch.zeros_like(next(iter(initial.params.values())).sum()),
        }

    def ends(received: Flat, view: View) -> Flats:
        shared = {name: received[name] for name in view.private["weights"]}
        own = where(view.private["seen"] > 0, view.private["own"], shared)
        return {"own": own, "shared": shared, "weights": view.private["weights"]}

    def start(received: Trees, results: Results, view: View) -> Trees:
        params, buffers = received
        trees = ends(params["model"], view)
        model = {**params["model"], **between(**trees)}
        return {"model": model, **trees}, {"model": buffers["model"]}

    def objective(view: View) -> Loss:
        return view.task.criterion

    def at_mixture(received: Trees, results: Results, view: View) -> Trees:
        params, buffers = received
        return {**params, "model": results[STAGE].params["model"]}, buffers

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        if not count:
            return plan
        learn = Stage(
            STAGE,
            NAME,
            start,
            objective,
            epochs=share,
            trainable=mixed,
            stream=STAGE,
            optimiser=mixing_weights(rate),
        )
        first = next(stage for stage in plan.before if stage.measure is None)
        before = (replace(s, start=at_mixture) if s is first else s for s in plan.before)
        return plan._replace(before=(learn, *before))

    def finish(results: Results, view: View) -> Slot:
        if not count:
            return view.private
        trained = results[UPLOAD].params["model"]
        own = {name: trained[name] for name in view.private["own"]}
        return {"own": own, "weights": results[STAGE].params["weights"], "seen": view.private["seen"] + 1}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        if results:
            return {"composed": Predictor.of(view.current)}
        mixture = between(**ends(view.received.params, view))
        model = Model({**view.received.params, **mixture}, view.received.buffers)
        return {"composed": Predictor.of(model)}

    return Part(
        NAME,
        init_client=init_client,
        check=check,
        stages=stages,
        finish=finish,
        predictors=predictors,
        needs_head=count > 0,
        roles=("round start", "composed predictor"),
        headline="composed",
    )
