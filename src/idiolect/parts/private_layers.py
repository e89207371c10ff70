"""Private layers: the last units of the network never leave the client (FedPer).

W_B <- sum_j gamma_j W_Bj,   W_Pj stays on client j         Arivazhagan et al. 2019, algorithms 1-2
https://arxiv.org/abs/1912.00818
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from idiolect.core import (
    UPLOAD,
    Clock,
    Flat,
    Flats,
    Initial,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    Structure,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice

__all__ = ["kept_layers", "own_units", "private_layers"]

Private: TypeAlias = Callable[[str, Structure], bool]  # whether a tensor never leaves the client


def own_units(count: int | None, side: str = "output") -> Private:
    """Returns the test whether a tensor belongs to the units that a client keeps; see ``private_layers``."""

    def private(name: str, structure: Structure) -> bool:
        if name not in structure.unit_of or count is None:
            return name in structure.unit_of
        return (structure.unit_of[name] >= structure.n_units - count) == (side == "output")

    return private


@keeps_options
def private_layers(
    count: int | None = 1, head_init: str = "random", fine_tune_epochs: float = 0, side: str = "output"
) -> Part:
    """Base layers are shared; the last units are the client's own, trained jointly with the base.

    Args:
        count: K_P >= 0, units kept private counting from the output (the classifier is one); 0 shares
            everything, None keeps everything.
        head_init: ``random``: every client draws its private layers from its own seed (paper); ``shared``: all
            start from the initial model.
        fine_tune_epochs: epochs >= 0 on the private layers alone, base frozen, at the start of every round
            (appendix A.3 uses 1).
        side: ``output`` keeps the last ``count`` units private; ``input`` keeps all the others, so that the last
            ``count`` are shared (LG-FedAvg).

    Deviations: none.  Normalisation statistics of private units stay private with them.  A newcomer trains only its
    private layers, with the shared ones frozen.
    """
    refuse_unknown_choice("head_init", head_init, ("random", "shared"))
    refuse_outside("fine_tune_epochs", fine_tune_epochs, 0)
    refuse_unknown_choice("side", side, ("output", "input"))
    if count is not None:
        refuse_outside("count (K_P)", count, 0)

    private = own_units(count, side)

    def check(structure: Structure, scene: Scene) -> None:
        if count is not None and count > structure.n_units:
            raise UserError(
                f"count (K_P) is {count} but the network has {structure.n_units} units; choose 0 to {structure.n_units}"
            )
        last = own_units(count)
        if count and not any(last(name, structure) for name in structure.params):
            raise UserError(
                f"count (K_P) is {count} and the network trains no parameter of so many units from its output; "
                "choose a larger count, or unfreeze some"
            )

    return kept_layers(private, head_init, fine_tune_epochs)._replace(
        name="private_layers",
        needs_head=count is not None and count > 0,
        private=None if count == 0 and side == "output" else private,
        check=check,
    )


def kept_layers(private: Private, head_init: str = "shared", fine_tune_epochs: float = 0) -> Part:
    """Returns a part without a name that keeps the tensors for which ``private`` holds on every client."""

    def init_client(initial: Initial) -> Flat:
        source = initial.params if head_init == "shared" else initial.draw("private layers", True).params
        return {name: source[name] for name in source if private(name, initial.structure)}

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        whole = {**params["model"], **view.private}
        ordered = {name: whole[name] for name in view.task.structure.params if name in whole}
        return {**params, "model": ordered}, buffers

    def private_if_any(name: str, structure: Structure) -> bool:
        return private(name, structure) or not any(private(n, structure) for n in structure.params)

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        before = plan.before
        if clock.newcomer:
            before = tuple(s if s.measure else replace(s, trainable=private_if_any) for s in before)
        if fine_tune_epochs > 0:
            main = next(stage for stage in plan.before if stage.name == "main")
            head = replace(
                main,
                name="head",
                epochs=fine_tune_epochs,
                has_minimum=False,
                trainable=private,
                stream="head",
            )
            before = (head, *before)
        return plan._replace(before=before)

    def finish(results: Results, view: View) -> Flat:
        trained = results[UPLOAD].params["model"]
        return {name: trained[name] for name in view.private}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        return {"composed": Predictor.of(view.current)}

    return Part(
        "",
        init_client=init_client,
        private=private,
        start=start,
        stages=stages,
        finish=finish,
        predictors=predictors,
        roles=("private layers", "composed predictor"),
        headline="composed",
    )
