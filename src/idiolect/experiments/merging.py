"""From what a cohort sent to the server's next state; whoever collects it, the same checks and the same sums."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from idiolect.core import Program, Tree
from idiolect.core.trees import Rows, all_finite, any_nan, stack, tree_leaves
from idiolect.engines import Outcome, serve
from idiolect.errors import UserError
from idiolect.experiments.setting import Setting

__all__ = ["broken_rows", "gathered", "refuse_broken", "served"]

Messages = dict[str, tuple[Tree, Tensor]]


def gathered(outcomes: Sequence[Outcome]) -> tuple[Messages, Tensor, Sequence[Tree]]:
    """What a cohort sends and its losses, stacked, and what each client keeps."""
    if isinstance(outcomes, Rows):
        whole = outcomes.stacked
        return stack(Rows(whole.messages, len(outcomes))), whole.loss, Rows(whole.private, len(outcomes))
    messages = stack([outcome.messages for outcome in outcomes])
    losses = torch.stack([outcome.loss for outcome in outcomes])
    return messages, losses, [outcome.private for outcome in outcomes]


def broken_rows(messages: Messages, losses: Tensor, privates: Sequence[Tree]) -> Tensor:
    """By client, whether what it sends is not finite or what it keeps holds a NaN; nothing may be kept.

    Args:
        messages: stacked over the cohort.
    """
    broken = ~all_finite((messages, losses))
    return broken | any_nan(privates) if privates and tree_leaves(privates[0]) else broken


def refuse_broken(clients: list[int], broken: Tensor, when: str) -> None:
    """Stops at the first client that is ``broken``; one look at the device for all of them."""
    found = [client for client, is_broken in zip(clients, broken.tolist(), strict=True) if is_broken]
    if found:
        raise UserError(
            f"client {found[0]} got parameters that are not finite {when}; lower learning_rate or set clip_norm"
        )


def served(setting: Setting, program: Program, server: Tree, messages: Messages) -> Tree:
    """The server's state after its own stages of the round, where there are any."""
    if not program.method.plan(program.scene, program.clock).server:
        return server
    server = serve(program, setting.work, server, messages)
    if not all(bool(torch.isfinite(leaf).all()) for leaf in tree_leaves(server["params"])):
        raise UserError(
            f"the server's own stage of round {program.clock.round + 1} gave parameters that are not finite; "
            "lower its learning rate"
        )
    return server
