"""Lets newcomers, clients that never trained, join after the last round.

A newcomer starts from a fresh private state and the final shared model.  It takes part in one round of the method,
which parts can run differently for newcomers (``clock.newcomer``), scores the shared model where every client does, and
runs the stages of the end of the run.  What it would upload is dropped: nothing on the server changes.
"""

from __future__ import annotations

from typing import NamedTuple

from idiolect.core import Program, Tree
from idiolect.engines import Engine, Logits
from idiolect.experiments.rounds.personal_downloads import Sent
from idiolect.experiments.setting import Setting

__all__ = ["JoinedNewcomers", "join"]


class JoinedNewcomers(NamedTuple):
    """What newcomers have after joining, and their logits before and after.

    Args:
        program: the method as newcomers run it.
        privates: their private state afterwards.
        before, after: logits on their test splits, on arrival and after joining.
        valid: logits on their validation splits after joining, where something is chosen on them.
        settled: by client, the predictors that stages after its round changed or added.
    """

    program: Program
    privates: dict[int, Tree]
    before: list[Logits]
    after: list[Logits]
    valid: list[Logits]
    settled: list[set[str]]


def join(setting: Setting, engine: Engine, sent: Sent, round: int) -> JoinedNewcomers:
    """Lets newcomers join at ``round``.

    Args:
        sent: what the server sends to them.
    """
    program, clients = setting.program(round, newcomer=True), sent.clients
    fresh = {client: setting.first_private(client) for client in clients}
    outcomes = engine.round(program, sent.shared, sent.with_own(fresh), observe=True)
    privates: dict[int, Tree] = dict(zip(clients, (outcome.private for outcome in outcomes), strict=True))
    after = [outcome.after for outcome in outcomes]
    settled: list[set[str]] = [set() for _ in outcomes]
    plan = program.method.plan(program.scene, program.clock)
    phases = [phase for phase in ("merged", "end") if getattr(plan, phase)]
    if phases:
        earlier = engine.evaluate(program, sent.shared, sent.with_own(privates), "test")
        for phase in phases:
            settled_rows = engine.settle(program, phase, sent.shared, sent.with_own(privates))
            privates = dict(zip(clients, settled_rows, strict=True))
        later = engine.evaluate(program, sent.shared, sent.with_own(privates), "test")
        changed = [_changed(*pair) for pair in zip(earlier, later, strict=True)]
        after = [{**trained, **found} for trained, found in zip(after, changed, strict=True)]
        settled = [set(found) for found in changed]
    before, valid = ([getattr(o, name) for o in outcomes] for name in ("before", "after_valid"))
    return JoinedNewcomers(program, privates, before, after, valid, settled)


def _changed(earlier: Logits, later: Logits) -> Logits:
    """Returns the logits of predictors that the stages after a newcomer's round changed or added."""
    return {n: logits for n, logits in later.items() if n not in earlier or not logits.equal(earlier[n])}
