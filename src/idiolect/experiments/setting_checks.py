"""What is refused before training: clients that cannot train, and data that the network cannot read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from idiolect.core import Messages, Method, Part, Plan
from idiolect.errors import UserError
from idiolect.experiments.spec import Experiment
from idiolect.federation import Federation
from idiolect.models import Net
from idiolect.option_parsing import parse_call

__all__ = ["refuse_unprotected", "refuse_unreadable_inputs", "refuse_unusable_clients"]

LEAST_SIDE = 8  # pixels of an augmented image: it is moved by up to four, so that half of it stays


def refuse_unusable_clients(
    experiment: Experiment, chosen: Method, federation: Federation, net: Net, here: np.ndarray
) -> None:
    """Refuses clients that the method or the network cannot serve, by name."""
    if chosen.needs_public and experiment.public < 1:
        raise UserError(f"{chosen.name} trains on public data on the server; set public, for example to 500")
    without = here[federation.clients.sizes("valid")[here] == 0]
    if chosen.needs_validation and len(without):
        raise UserError(
            f"{chosen.name} chooses on validation data and {federation.called(without[0])} holds none; set valid above "
            "0, or give it some where the data say how they are split"
        )
    batches = np.minimum(federation.clients.sizes("train"), experiment.batch_size)
    single = here[batches[here] < 2]
    if net.has_batchnorm and len(single):
        raise UserError(
            f"{federation.called(single[0])} would train on batches of one sample, which batch normalisation cannot; "
            "use fewer clients, a larger batch or a network without it"
        )


def refuse_unreadable_inputs(experiment: Experiment, federation: Federation, net: Net) -> None:
    """Refuses data that the network or the augmentation cannot read."""
    x, augmented = federation.x, experiment.augmentation != "none"
    if x.dtype.kind == "i" and not net.takes_tokens:
        raise UserError(
            f"model {experiment.model} reads images and {experiment.dataset} holds tokens; use char_lstm or another "
            "model with an embedding"
        )
    if augmented and (net.takes_tokens or x.ndim != 4 or min(x.shape[2:]) < LEAST_SIDE):
        raise UserError(
            f"augmentation {experiment.augmentation} moves images and these are {experiment.dataset}'s "
            f"inputs of {'x'.join(map(str, x.shape[1:]))} for {experiment.model}; set augmentation to none"
        )
    if net.vocabulary is None or not len(x):
        return
    whole = x.dtype.kind == "i" or bool((x == np.floor(x)).all())
    if not whole or x.min() < 0 or x.max() >= net.vocabulary:
        raise UserError(
            f"model {experiment.model} reads tokens 0..{net.vocabulary - 1} and the data hold numbers from "
            f"{x.min():g} to {x.max():g}; use a dataset of tokens or another model"
        )


def refuse_unprotected(
    experiment: Experiment, chosen: Method, messages: Messages, plans: Sequence[Plan]
) -> None:
    """Refuses what would tell more of a client or an example than a part's noise covers, and what noise would destroy.

    Args:
        messages: the form of what a client sends.
        plans: of rounds that together have every stage.
    """
    for part in chosen.parts:
        if part.guarantee is None or not part.guarantee.noise:
            continue
        if part.guarantee.unit == "example":
            for plan in plans:
                _refuse_noiseless_stages(part, chosen, plan)
            continue
        if "buffers" in messages:
            raise UserError(
                f"{part.name} would add noise to running statistics, and a variance with noise can be negative; set "
                "buffers to private, or use a network without running statistics"
            )
        late = next((text for text in experiment.under if parse_call(text)[0] == "late"), None)
        if late is not None and part.guarantee.observer == "receivers":
            raise UserError(
                f"under {late} two uploads of one client can arrive in one round, and the noise of {part.name} covers "
                "one; leave late out, or let every client add the noise to its own upload (where=local)"
            )


def _refuse_noiseless_stages(private: Part, chosen: Method, plan: Plan) -> None:
    """Refuses stages that ``private`` adds no noise to and on which uploads may depend."""
    apart = {part.name for part in chosen.parts if part.apart}
    earlier = [s for s in plan.before if s.objective is not None or s.measure is not None]
    for stage in (*earlier, *(s for s in (*plan.after, *plan.merged) if s.owner not in apart)):
        does = "measures" if stage.measure is not None else "trains"
        raise UserError(
            f"{private.name} adds noise to the steps of the method's own loss, and {stage.owner or chosen.name} {does} "
            f"something beside them in its stage {stage.name!r}, on which what leaves a client may depend; use another "
            "method"
        )
