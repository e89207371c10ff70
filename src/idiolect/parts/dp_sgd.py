"""DP-SGD: local steps on clipped gradients of single examples, with noise.

g_i <- g_i min(1, C / ||g_i||);   g <- (sum_{i in B} g_i + z C N(0, I)) / E|B|      B takes each example with E|B| / n
Abadi et al., CCS 2016, algorithm 1, https://arxiv.org/abs/1607.00133
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from idiolect.core import Batch, Clock, Flat, Flats, Guarantee, Part, Plan, Scene, Structure, View
from idiolect.core.part import keeps_options
from idiolect.core.trees import tree_leaves
from idiolect.errors import UserError, refuse_outside

__all__ = ["dp_sgd"]

NAME = "dp_sgd"


@keeps_options
def dp_sgd(clip: float | None = 1.0, noise: float = 1.0, delta: float = 1e-5) -> Part:
    """Hides from the server which examples a client trains on: every step before the upload is one of DP-SGD.

    Private layers that train in these steps are noisy too, since what leaves depends on them.  Stages after the upload,
    such as Ditto's companion, are not.

    Args:
        clip: C > 0, the largest norm of the gradient of an example over all layers; None is no bound, without noise.
        noise: z >= 0, the standard deviation of the noise in units of C.
        delta: of the budget that is printed and recorded, above 0 and below 1.

    Deviations: none.  As in Opacus, a step divides by the expected size of its batch, min(scene's batch size, n), and
    passes are replaced by as many steps, each of which takes every example by itself.  Without bound and noise the part
    changes nothing.
    """
    refuse_outside("noise (z)", noise, 0)
    refuse_outside("delta", delta, 1e-300, 1 - 1e-9)
    if clip is None:
        if noise:
            raise UserError(
                f"{NAME} has noise {noise:g} in units of its bound and no bound; set clip, or noise to 0"
            )
        return Part(NAME)
    refuse_outside("clip (C)", clip, 1e-300)
    bound = clip

    def check(structure: Structure, scene: Scene) -> None:
        mixing = sorted(structure.batch_normalisation & {*structure.params, *structure.buffers})
        if mixing:
            raise UserError(
                f"{NAME} needs the gradient of each example by itself, and batch normalisation ({mixing[0]}) makes the "
                "outputs of an example depend on its batch; use a network without it"
            )

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        return plan._replace(before=tuple(replace(stage, sampling="poisson") for stage in plan.before))

    def reduce(grads: Flats, batch: Batch, view: View) -> Flats:
        if beside := [tree for tree in grads if tree != "model"]:
            raise UserError(
                f"{NAME} adds noise to the shared model alone, and {beside[0]} is trained in the same steps; use a "
                "method that trains what is private after the upload"
            )
        factor = clipping(grads["model"], bound) * batch.mask
        total = {name: torch.tensordot(factor, g, 1) for name, g in grads["model"].items()}
        size = view.facts.samples.clamp(max=view.scene.batch_size)
        return {
            "model": {
                name: g / size for name, g in with_noise(total, batch.draws[NAME] * noise * bound).items()
            }
        }

    return Part(
        NAME,
        check=check,
        stages=stages,
        reduce=reduce,
        noise=lambda structure: structure.n_scalars,
        roles=("gradient rule",),
        guarantee=Guarantee("example", "server", bound, noise, delta),
        overrides=("batches of random size, which take each example by itself",),
    )


def clipping(grads: Flat, bound: float) -> Tensor:
    """Returns for each example [B] the factor that brings the norm of its gradient down to ``bound``."""
    squares = torch.stack([(g**2).flatten(1).sum(1) for g in tree_leaves(grads)])
    norms: Tensor = squares.sum(0).sqrt()
    return bound / norms.clamp(min=bound)


def with_noise(total: Flat, noise: Tensor) -> Flat:
    """Adds the next numbers of ``noise`` [d] to every tensor."""
    found, first = {}, 0
    for name, g in total.items():
        found[name] = g + noise[first : first + g.numel()].reshape(g.shape)
        first += g.numel()
    return found
