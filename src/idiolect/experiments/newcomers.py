"""Newcomers: clients that never trained join after the last round.

A newcomer starts from a fresh private state and the final shared model.  It takes part in one round of the method
(which parts may run otherwise for a newcomer: ``clock.newcomer``), scores the shared model where every client does,
and goes through the stages of the end of the run.  What it would upload is dropped: nothing on the server changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from idiolect.core import Program, Tree, broadcast
from idiolect.engines import Engine
from idiolect.engines.evaluation import Logits
from idiolect.experiments.setting import Setting

__all__ = ["Joined", "join"]


class Joined(NamedTuple):
    """Args:
    program: the method as newcomers run it.
    privates: their private state afterwards.
    before, after: logits on their test splits, as they arrive and when they have joined.
    """

    program: Program
    privates: dict[int, Tree]
    before: list[Logits]
    after: list[Logits]


def join(
    setting: Setting, engine: Engine, server: Tree, round: int, clients: Sequence[int] | None = None
) -> Joined:
    """Lets newcomers join at ``round``; every one of the federation unless some are given."""
    federation, program = setting.federation, setting.program(round, newcomer=True)
    sent = broadcast(setting.method, server)
    clients = range(federation.population, len(federation.clients)) if clients is None else clients
    fresh = {client: setting.first_private(client) for client in clients}
    outcomes = engine.round(program, sent, fresh, observe=True)
    privates = dict(zip(clients, (outcome.private for outcome in outcomes), strict=True))
    plan = program.method.plan(program.scene, program.clock)
    for phase in ("merged", "end"):
        if getattr(plan, phase):
            privates = dict(zip(clients, engine.settle(program, phase, sent, privates), strict=True))
    settled = engine.evaluate(program, sent, privates, "test")
    after = [{**outcome.after, **found} for outcome, found in zip(outcomes, settled, strict=True)]
    return Joined(program, privates, [outcome.before for outcome in outcomes], after)
