"""Weighted average of the shared parameters (FedAvg).

theta_{t+1} = sum_{k in S_t} p_k theta_t^k            McMahan et al., AISTATS 2017, algorithm 1
https://arxiv.org/abs/1602.05629
"""

from __future__ import annotations

from idiolect.core import UPLOAD, Clock, Flat, Message, Model, Part, Predictor, Results, Slot, View
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside

__all__ = ["average"]


@keeps_options
def average(step: float = 1.0) -> Part:
    """Moves the shared model to the mean of the uploaded ones, or part of the way.

    Args:
        step: >= 0; theta <- theta + step (mean - theta).  SCAFFOLD calls it eta_g and pFedMe beta.  1 is FedAvg, and
            then the part gives way to any other server update of a composition.

    Deviations: none.  The weights p_k are the run's (uniform, or by samples), normalised over the cohort.
    """

    refuse_outside("step", step, 0)

    def upload(results: Results, view: View) -> Message:
        trained = results[UPLOAD].params["model"]
        return Message({name: trained[name] for name in view.origin.params}, view.facts.weight)

    def merge(params: Flat, slot: Slot, mean: Flat, clock: Clock) -> tuple[Flat, Slot]:
        if step == 1:
            return {**params, **mean}, slot
        return {**params, **{name: params[name] + step * (mean[name] - params[name]) for name in mean}}, slot

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        found = {"global": Predictor.of(view.origin)} if view.complete else {}
        if results:
            trained = results[UPLOAD]
            found["after-local"] = Predictor.of(Model(trained.params["model"], trained.buffers["model"]))
        return found

    def origin(params: Flat, slot: Slot) -> Slot:
        return params

    return Part(
        "average",
        upload=upload,
        origin=origin,
        merge=merge,
        predictors=predictors,
        roles=("server update",),
        headline="global",
        gives_way=step == 1,
    )
