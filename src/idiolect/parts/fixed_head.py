"""Fixed head: the classifier stays as it was initialised, and the layers below it are trained and averaged (FedBABU).

theta_B <- sum_k p_k theta_B^k  after local steps on theta_B alone,     theta_H = theta_H(0), the same on every client
Oh, Kim, Yun, ICLR 2022, algorithm 1, https://arxiv.org/abs/2106.06042
"""

from __future__ import annotations

from dataclasses import replace

from idiolect.core import Clock, Part, Plan, Scene, Structure
from idiolect.core.part import keeps_options
from idiolect.errors import UserError, refuse_outside
from idiolect.parts.private_layers import own_units, private_layers

__all__ = ["fixed_head"]


@keeps_options
def fixed_head(count: int = 1) -> Part:
    """Local training leaves the last units alone; nobody sends them, because everyone has them from the start.

    Args:
        count: units >= 0 of the head, counted from the output; 0 trains everything.

    Deviations: none.  A newcomer trains the body as a member does.  Momentum and weight decay do not reach the head.
    """
    refuse_outside("count", count, 0)
    kept = private_layers(count, head_init="shared")
    body = own_units(count, "input")

    def check(structure: Structure, scene: Scene) -> None:
        if kept.check:
            kept.check(structure, scene)
        if not any(body(name, structure) for name in structure.params):
            raise UserError(
                f"fixed_head: count is {count} and leaves no layer of the network to train; choose a smaller count"
            )

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        frozen = (replace(s, trainable=body) if s.name == "main" else s for s in plan.before)
        return plan._replace(before=tuple(frozen))

    return kept._replace(name="fixed_head", check=check, stages=stages)
