"""Classifier collaboration: a client's classifier is a mixture of those of clients whose classes look alike (FedPAC).

h_i = [P_i(y = c) mean feature of class c]_c,    V_i = E_i ||f(x)||^2 - ||h_i||^2      with the received features f
alpha_i = argmin_{alpha >= 0, sum alpha = 1}  sum_j alpha_j^2 V_j / n_j + ||h_i - sum_j alpha_j h_j||^2
phi_i <- sum_j alpha_ij phi_j                                                          over the cohort
Xu, Tong, Huang, ICLR 2023, section 4.2 and algorithm 1, https://arxiv.org/abs/2306.11867
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Clock,
    Flat,
    Flats,
    Initial,
    Measure,
    Message,
    Model,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    ServerView,
    Slot,
    Stage,
    Uploaded,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import pick, tree_map
from idiolect.parts.class_prototypes import class_sums
from idiolect.parts.private_layers import own_units

__all__ = ["classifier_collaboration", "combining_weights"]

NAME = "classifier_collaboration"
STAGE = "feature statistics"


def combining_weights(variances: NDArray[np.floating], means: NDArray[np.floating]) -> NDArray[np.float64]:
    """Returns alpha [C, C], a row for each client, from V_j / n_j [C] and h_j [C, K d].

    The quadratic programme on the simplex is one of non-negative least squares: with x = s alpha, the least of
    ||A x||^2 + (1 - sum x)^2 over s is q / (1 + q), which grows with q = ||A alpha||^2.  A client whose own term is
    zero keeps its classifier.  A variance below zero, which no honest client sends, counts as zero.
    """
    count, variances = len(variances), np.maximum(variances, 0)
    # a triangle whose columns are as far apart as the means
    corner = np.asarray(np.linalg.qr(np.asarray(means, np.float64).T, mode="r"), np.float64)
    spread, target = np.diag(np.sqrt(np.asarray(variances, np.float64))), np.zeros(count + len(corner) + 1)
    target[-1] = 1
    found = np.eye(count)
    for client in np.flatnonzero(variances):
        bias = corner[:, [client]] - corner
        share, _ = nnls(np.vstack([spread, bias, np.ones(count)]), target, maxiter=100 * count)
        found[client] = share / share.sum()
    return found


def statistics() -> Measure:
    """Measures the sums of ``class_sums``, and that of the squared norms of the features."""
    sums = class_sums()

    def init(model: Model, view: View) -> Flat:
        return {**sums.init(model, view), "square": view.facts.samples.new_zeros(())}

    def add(found: Flat, model: Model, batch: Batch, view: View) -> Flat:
        square = (view.predict(model, batch).features ** 2).sum(-1) @ batch.mask
        return {**sums.add(found, model, batch, view), "square": found["square"] + square}

    return Measure(init, add)


@keeps_options
def classifier_collaboration() -> Part:
    """A client's classifier is the mixture of the cohort's that the server estimates to err least on its data.

    Deviations: the mixture is made from the uploads of one round, and a client that did not take part keeps its last
    one.  The programme is solved exactly; the authors' code drops weights below 0.001.  A client not heard from has the
    initial classifier.
    """
    classifier = own_units(1)

    def init_kept(initial: Initial, population: int) -> Slot:
        return {"head": pick(initial.params, lambda name: classifier(name, initial.structure))}

    def keep(uploaded: Uploaded, view: ServerView) -> tuple[Slot, Slot]:
        variance, means = (uploaded.value[name].double().cpu().numpy() for name in ("variance", "means"))
        alpha = torch.from_numpy(combining_weights(variance, means.reshape(len(means), -1)))

        def mixed(leaf: Tensor) -> Tensor:
            return torch.einsum("ij,j...->i...", alpha.to(leaf), leaf)

        return {"head": tree_map(mixed, uploaded.value["head"])}, view.slot

    def personal_download(clients: Sequence[int], view: ServerView) -> Slot:
        return {"head": view.kept.rows(clients)["head"]}

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        return {**params, "model": {**params["model"], **view.download["head"]}}, buffers

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        return plan._replace(before=(Stage(STAGE, NAME, measure=statistics()), *plan.before))

    def upload(results: Results, view: View) -> Message:
        found = results[STAGE].measured
        n = found["count"].sum().clamp(min=1)
        means = found["sum"] / n
        variance = (found["square"] / n - (means**2).sum()).clamp(min=0) / n
        trained = results[UPLOAD].params["model"]
        head = {name: trained[name] for name in view.download["head"]}
        return Message({"head": head, "means": means, "variance": variance}, torch.ones_like(n))

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        if results:
            return {"composed": Predictor.of(view.current)}
        mixed = {**view.current.params, **view.download.get("head", {})}
        return {"composed": Predictor.of(Model(mixed, view.current.buffers))}

    return Part(
        NAME,
        needs_head=True,
        needs_classes=True,
        init_kept=init_kept,
        keep=keep,
        personal_download=personal_download,
        scored_with_download=True,
        start=start,
        stages=stages,
        upload=upload,
        predictors=predictors,
        reveals=True,
        headline="composed",
    )
