"""Alternating layers: head first with the body frozen, then body with the head frozen (FedRep).

E_h epochs on the private head, then E_b epochs on the shared body, which is averaged
Collins et al., ICML 2021, algorithm 1, https://arxiv.org/abs/2102.07078
"""

from __future__ import annotations

from dataclasses import replace

from idiolect.core import Clock, Part, Plan, Scene, Structure
from idiolect.core.part import keeps_options
from idiolect.errors import refuse_outside
from idiolect.parts.private_layers import own_units, private_layers

__all__ = ["alternating_layers"]


@keeps_options
def alternating_layers(
    count: int = 1,
    head_epochs: float = 10,
    body_epochs: float | None = 1,
    head_init: str = "random",
    head_lr_scale: float = 1.0,
) -> Part:
    """Private layers that never train together with the shared ones.

    Args:
        count: units kept private counting from the output.
        head_epochs, body_epochs: E_h and E_b >= 0; None trains the body for the scene's local epochs.
        head_init: ``random`` or ``shared``.
        head_lr_scale: >= 0, times the scene's learning rate, of the head.

    Deviations: none.  A frozen part runs in evaluation mode, so its normalisation statistics stay.  A newcomer trains
    its head alone.
    """
    refuse_outside("head_epochs", head_epochs, 0)
    if body_epochs is not None:
        refuse_outside("body_epochs", body_epochs, 0)
    refuse_outside("head_lr_scale", head_lr_scale, 0)
    private = own_units(count)

    def shared(name: str, structure: Structure) -> bool:
        return not private(name, structure)

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        main = next(stage for stage in plan.before if stage.name == "main")
        place = plan.before.index(main)
        head = replace(main, name="head", epochs=head_epochs, lr_scale=head_lr_scale, trainable=private)
        body = replace(main, name="body", epochs=body_epochs, trainable=shared, start=None)
        both = (head,) if clock.newcomer else (head, body)
        return plan._replace(before=(*plan.before[:place], *both, *plan.before[place + 1 :]))

    return private_layers(count, head_init)._replace(
        name="alternating_layers", stages=stages, roles=("main stage", "private layers", "composed predictor")
    )
