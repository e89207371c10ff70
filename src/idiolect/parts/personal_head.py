"""Personal head: a private classifier that adds to the shared one (FedROD).

z_G = G(h),   z_P = stopgrad(z_G) + P(stopgrad(h))
balanced softmax for the shared path: CE(z_G + gamma log n_c);   plain CE(z_P) for the private head alone
Chen and Chao, ICLR 2022, https://arxiv.org/abs/2107.00778
"""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Flat,
    Flats,
    Forward,
    Initial,
    Loss,
    Mode,
    Out,
    Part,
    Predictor,
    Results,
    Scene,
    Structure,
    View,
)
from idiolect.core.part import keeps_options
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice

__all__ = ["personal_head"]

NAME = "personal_head"


def additive(logits: Tensor, counts: Tensor, gamma: float) -> Tensor:
    """z_c + gamma log n_c: balanced softmax; a class without samples gets probability 0 unless gamma = 0."""
    return logits if gamma == 0 else logits + gamma * counts.log()


def multiplicative(logits: Tensor, counts: Tensor, gamma: float) -> Tensor:
    """z_c (4 n_c / n)^gamma: what the MAP authors' code computes."""
    return logits * (4 * counts / counts.sum().clamp(min=1)) ** gamma


PRIORS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "additive": additive,
    "multiplicative": multiplicative,
}


@keeps_options
def personal_head(gamma: float = 1.0, prior: str = "additive", head_init: str = "zero") -> Part:
    """The shared path learns a class-balanced model, a private linear head what the client's classes add to it.

    Args:
        gamma: >= 0, strength of the class prior; 0 makes the shared path FedAvg.
        prior: ``additive`` (the paper's balanced softmax) or ``multiplicative``.
        head_init: ``zero``, ``copy`` of the shared head's first rows, or ``fresh`` from the client's own seed.

    Deviations: none with the defaults.  The private head has no bias.  Other terms of the objective see the logits
    without the prior.  ``multiplicative`` is only the prior of the MAP authors' variant: their code also averages both
    heads' logits and lets the private loss train the extractor.
    """
    refuse_outside("gamma", gamma, 0)
    refuse_unknown_choice("prior", prior, PRIORS)
    refuse_unknown_choice("head_init", head_init, ("zero", "copy", "fresh"))

    def check(structure: Structure, scene: Scene) -> None:
        if not structure.linear_head:
            raise UserError(
                "personal_head needs a network whose classifier is a single linear layer and trained"
            )

    def init_client(initial: Initial) -> Flat:
        structure = initial.structure
        weight = next(iter(initial.params.values())).new_zeros(structure.n_classes, structure.n_features)
        if head_init != "zero":
            source = initial.params if head_init == "copy" else initial.draw(NAME, True).params
            weight = source[structure.classifier]
        return {"weight": weight}

    def start(params: Flats, buffers: Flats, view: View) -> tuple[Flats, Flats]:
        return {**params, "head": view.private}, buffers

    def criterion(inner: Loss, view: View) -> Loss:
        def total(params: Flats, batch: Batch, out: Out) -> Tensor:
            balanced = out._replace(logits=PRIORS[prior](out.logits, view.facts.class_counts, gamma))
            personal = out.logits.detach() + F.linear(out.features.detach(), params["head"]["weight"])
            own = view.task.criterion(params, batch, out._replace(logits=personal))
            return inner(params, batch, balanced) + own

        return total

    def finish(results: Results, view: View) -> Flat:
        return results[UPLOAD].params["head"]

    def summed(view: View) -> Forward:
        def forward(params: Flats, buffers: Flats, batch: Batch, train: Mode) -> tuple[Out, Flats]:
            out, new = view.task.bare(params, buffers, batch, train)
            return out._replace(logits=out.logits + F.linear(out.features, params["head"]["weight"])), new

        return forward

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        params = {"model": view.current.params, "head": view.private}
        return {"composed": Predictor(params, {"model": view.current.buffers}, summed(view))}

    return Part(
        NAME,
        needs_head=True,
        init_client=init_client,
        check=check,
        start=start,
        criterion=criterion,
        finish=finish,
        predictors=predictors,
        needs_classes=gamma != 0,
        roles=("logit map", "companion training", "composed predictor"),
        headline="composed",
    )
