"""Local update after the last round (the -LU variants).

theta_k = the final shared model after a few epochs of SGD on client k's training data
Wang et al. 2019, https://arxiv.org/abs/1910.10252; as compared with in SuPerFed, Hahn et al. 2022
"""

from __future__ import annotations

from idiolect.core import (
    Clock,
    Flats,
    Loss,
    Model,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    Stage,
    View,
    as_received,
)
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.parts.private_layers import own_units

__all__ = ["fine_tune"]

TUNED = {"all": None, "head": own_units(1), "body": own_units(1, "input")}  # which tensors are trained


@keeps_options
def fine_tune(epochs: float = 1, lr_scale: float = 1.0, tuned: str = "all") -> Part:
    """Every client fine-tunes its own copy of the final model.

    Args:
        epochs: >= 0; the paper says "small steps" and gives no number.
        lr_scale: >= 0, times the scene's learning rate.
        tuned: ``all``, or only the last unit (``head``) or only the units below it (``body``).

    Deviations: plain cross-entropy, also after FedProx.  The batches are those of one more round.
    """
    refuse_outside("epochs", epochs, 0)
    refuse_outside("lr_scale", lr_scale, 0)
    refuse_unknown_choice("tuned", tuned, TUNED)

    def objective(view: View) -> Loss:
        return view.task.criterion

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        tune = Stage(
            "fine tune",
            "fine_tune",
            as_received,
            objective,
            epochs=epochs,
            lr_scale=lr_scale,
            trainable=TUNED[tuned],
        )
        return plan._replace(end=(*plan.end, tune))

    def personalise(results: Results, view: View) -> Flats:
        tuned = results["fine tune"]
        return {"params": tuned.params["model"], "buffers": tuned.buffers["model"]}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        return (
            {"LU": Predictor.of(Model(view.private["params"], view.private["buffers"]))}
            if view.private
            else {}
        )

    return Part(
        "fine_tune",
        needs_head=tuned != "all",
        stages=stages,
        personalise=personalise,
        predictors=predictors,
        roles=("tuned predictor",),
        headline="LU",
    )
