"""Client-level differential privacy: bounded updates, with noise on their mean or on each of them (DP-FedAvg).

u_k <- u_k min(1, C / ||u_k||)                                        u_k = what client k sends, less what it received
central  theta <- theta + (sum_k u_k + z C N(0, I)) / m               m the expected cohort, whoever answers
local    u_k <- u_k + z C N(0, I)                                     before it leaves the client
McMahan, Ramage, Talwar, Zhang, ICLR 2018, algorithm 1 with flat clipping and the estimator f_f with weights of 1
https://arxiv.org/abs/1710.06963
"""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.core import GatherView, Guarantee, Messages, Part
from idiolect.core.part import keeps_options
from idiolect.core.trees import Slot, tree_leaves, with_leaves
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice

__all__ = ["client_dp"]

NAME = "client_dp"


@keeps_options
def client_dp(
    clip: float | None = 1.0, noise: float = 1.0, where: str = "central", delta: float = 1e-5
) -> Part:
    """Hides whether a client took part, with all its data: its whole update is bounded, and noise is added.

    The update is everything that the client sends: the model's shared layers, and what other parts send beside them.
    What stays with the client is neither bounded nor noisy.

    Args:
        clip: C > 0, the largest norm of an update; None is no bound, without noise.
        noise: z >= 0, the standard deviation of the noise in units of C.
        where: ``central``: a server that sees every update adds noise to their mean; ``local``: every client adds noise
            to its own update, so that the server need not be trusted.
        delta: of the budget that is printed and recorded, above 0 and below 1.

    Deviations: the cohort is that of the run's ``selection``; the paper's is ``poisson``.  Every client weighs 1.
    Without bound and noise the part changes nothing.
    """
    refuse_outside("noise (z)", noise, 0)
    refuse_outside("delta", delta, 1e-300, 1 - 1e-9)
    refuse_unknown_choice("where", where, ("central", "local"))
    if clip is None:
        if noise:
            raise UserError(
                f"{NAME} has noise {noise:g} in units of its bound and no bound; set clip, or noise to 0"
            )
        return Part(NAME)
    refuse_outside("clip (C)", clip, 1e-300)
    bound, central = clip, where == "central"

    def release(messages: Messages, view: GatherView) -> Messages:
        updates = {name: minus(value, view.origin[name]) for name, (value, _) in messages.items()}
        leaves = [u.reshape(len(u), -1) for u in tree_leaves(updates) if u.is_floating_point()]
        norms = torch.stack([(u**2).sum(1) for u in leaves]).sum(0).sqrt()
        factor = bound / norms.clamp(min=bound)
        found: Messages = {}
        for name, (value, weight) in messages.items():
            bounded = [scaled(u, factor) for u in tree_leaves(updates[name])]
            if not central:
                bounded = noisy(bounded, noise * bound, name, view)
            found[name] = (plus(value, bounded, view.origin[name]), torch.ones_like(weight))
        return found

    def gather(messages: Messages, view: GatherView) -> Messages:
        size, found = view.clock.expected_cohort, {}
        for name, (value, weight) in messages.items():
            updates = tree_leaves(minus(value, view.origin[name]))
            totals = [u.sum(0, keepdim=True) for u in updates]
            means = [total / size for total in noisy(totals, noise * bound, name, view)]
            found[name] = (plus(value, means, view.origin[name]), weight.new_ones(1))
        return found

    return Part(
        NAME,
        release=release,
        gather=gather if central else None,
        roles=("robust mean",) if central else (),
        guarantee=Guarantee("client", "receivers" if central else "server", bound, noise, delta),
        overrides=("every client weighs 1, and a mean divides by the expected cohort",)
        if central
        else ("every client weighs 1",),
    )


def minus(value: Slot, origin: Slot) -> Slot:
    """Returns the updates in a stacked message; whole numbers, which no noise covers, stay at their origin."""
    pairs = zip(tree_leaves(value), tree_leaves(origin), strict=True)
    return with_leaves(value, [v - o if v.is_floating_point() else torch.zeros_like(v) for v, o in pairs])


def plus(like: Slot, updates: list[Tensor], origin: Slot) -> Slot:
    """Returns the message whose updates these are, in the form of ``like``."""
    return with_leaves(like, [o + u for u, o in zip(updates, tree_leaves(origin), strict=True)])


def scaled(updates: Tensor, factor: Tensor) -> Tensor:
    return updates * factor.to(updates.dtype).reshape(-1, *[1] * (updates.ndim - 1))


def noisy(updates: list[Tensor], scale: float, name: str, view: GatherView) -> list[Tensor]:
    """Adds noise of standard deviation ``scale`` to the tensors of a message."""
    if not scale:
        return updates
    return [
        u + scale * view.noise(u, f"{name} {place}") if u.is_floating_point() else u
        for place, u in enumerate(updates)
    ]
