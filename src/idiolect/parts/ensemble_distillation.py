"""Ensemble distillation: after the merge, the server distils the clients' mean logits on public inputs (FedDF).

q = sigma(mean_k z_k(x));    min_theta CE(q, sigma(z(x))) from theta = sum_k p_k theta_k
Lin et al., NeurIPS 2020, algorithm 1, https://arxiv.org/abs/2006.07242
"""

from __future__ import annotations

from torch import Tensor
from torch.func import vmap

from idiolect.core import (
    Batch,
    Clock,
    Flat,
    Flats,
    Loss,
    Model,
    Out,
    Part,
    Plan,
    Results,
    Scene,
    Stage,
    View,
    adam,
)
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside
from idiolect.parts.distillation import soft_cross_entropy

__all__ = ["ensemble_distillation"]

NAME = "ensemble_distillation"
STAGE = "ensemble distillation"


@keeps_options
def ensemble_distillation(
    steps: int = 100, learning_rate: float = 1e-4, weight_decay: float = 0.0, every: int = 1
) -> Part:
    """Trains the merged model towards the ensemble of the clients' models, which the server sees one by one.

    Args:
        steps: >= 0 on batches of the scene's size; 0 leaves the merged model alone.  The paper goes up to 10,000 and
            stops early.
        learning_rate: of Adam, cosine-annealed to 0; the MAP authors pair (rate, steps) as (0.01, 200),
            (0.001, 300) and (0.0001, 500).
        weight_decay: >= 0.
        every: distils in every n-th round only.

    Deviations: a fixed number of steps in place of early stopping.  It follows whichever server update there is; the
    paper's is the average.
    """
    refuse_outside("steps", steps, 0)
    refuse_outside("learning_rate", learning_rate, 0)
    refuse_outside("weight_decay", weight_decay, 0)
    refuse_outside("every", every, 1)

    def ensemble(view: View, batch: Batch) -> Tensor:
        def logits(params: Flat, buffers: Flat) -> Tensor:
            return view.task.forward(params, buffers, batch, False)[0].logits

        return vmap(logits)(view.uploads["params"], view.uploads["buffers"]).mean(0)

    def objective(view: View) -> Loss:
        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            return soft_cross_entropy(out.logits, ensemble(view, batch), batch.mask, 1.0)

        return total

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        if (clock.round + 1) % every:
            return plan
        optimiser = adam(weight_decay=weight_decay, anneal_over=steps)
        distil = Stage(
            STAGE,
            NAME,
            objective=objective,
            steps=steps,
            lr_scale=learning_rate,
            optimiser=optimiser,
            split="public",
        )
        return plan._replace(server=(*plan.server, distil))

    def serve(results: Results, view: View, model: Model) -> Model:
        if STAGE not in results:
            return model
        distilled = results[STAGE]
        return Model(distilled.params["model"], distilled.buffers["model"])

    return Part(
        NAME,
        stages=stages,
        serve=serve,
        individual=True,
        needs_public=True,
        needs_classes=True,
        needs_whole=True,
        roles=("uploaded models",),
    )
