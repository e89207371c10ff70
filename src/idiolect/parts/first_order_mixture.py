"""First-order mixture: each client weighs the models of others by how much they help on its validation data (FedFomo).

w_n = max(0, (L_i(theta_i) - L_i(theta_n)) / ||theta_n - theta_i||),   normalised to a sum of 1 over the received n
theta_i <- theta_i + sum_n w_n (theta_n - theta_i),   then local training
Zhang et al., ICLR 2021, eqs. (2), (4) and (5), https://arxiv.org/abs/2012.08565
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Clock,
    Initial,
    Measure,
    Message,
    Model,
    Part,
    Plan,
    Results,
    Scene,
    ServerView,
    Slot,
    Stage,
    Trees,
    Uploaded,
    View,
    derive,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import tree_map
from idiolect.errors import refuse_outside

__all__ = ["first_order_mixture", "mixing_weights", "picked"]

NAME = "first_order_mixture"
STAGE = "losses of the received models"


def mixing_weights(losses: Tensor, distances: Tensor) -> Tensor:
    """Returns w [M] before normalising, from losses [1 + M], the client's own first, and distances [M].

    A model that is the client's own gets no weight.
    """
    gain = (losses[0] - losses[1:]) / torch.where(distances > 0, distances, 1)
    return torch.where(distances > 0, gain, 0).clamp(min=0)


def picked(
    affinity: NDArray[np.floating],
    others: Sequence[int],
    count: int,
    explore: float,
    random: np.random.Generator,
) -> list[int]:
    """Returns ``count`` different clients: the best that is left, or with probability ``explore`` any that is left.

    Ties are broken at random; fewer are returned where there are fewer others.
    """
    shuffled = random.permutation(np.asarray(others, np.int64))
    left: list[int] = shuffled[np.argsort(-affinity[shuffled], kind="stable")].tolist()
    found = []
    for _ in range(min(count, len(left))):
        place = int(random.integers(len(left))) if random.random() < explore else 0
        found.append(left.pop(place))
    return found


@keeps_options
def first_order_mixture(models: int = 5, explore: float = 0.3) -> Part:
    """Each client receives the last uploads of some others and moves towards those that fit its validation data better.

    Args:
        models: M >= 1, received in a round; the server picks those that helped the client most so far.
        explore: epsilon in [0, 1], the probability of each pick being a random one.

    Deviations: epsilon stays as it is; the paper lets it fall.  Where fewer than M others were heard from, the rest are
    the client's own last upload, which gets no weight.  Models of others are judged with the
    client's own running statistics.  The affinity of a client is one number for each client of the population, on the
    server's disk.
    """
    refuse_outside("models (M)", models, 1)
    refuse_outside("explore (epsilon)", explore, 0, 1)

    def init_kept(initial: Initial, population: int) -> Slot:
        return {
            "model": dict(initial.params),
            "affinity": next(iter(initial.params.values())).new_ones(population),
        }

    def personal_download(clients: Sequence[int], view: ServerView) -> Slot:
        affinity = view.kept.rows(clients)["affinity"].cpu().numpy()
        heard, sources = view.kept.clients, []
        for client, row in zip(clients, affinity, strict=True):
            random = np.random.default_rng(derive(view.seed, NAME, view.clock.round, client))
            some = picked(row, [other for other in heard if other != client], models, explore, random)
            sources.append(some + [client] * (models - len(some)))
        rows = view.kept.rows([source for some in sources for source in some])["model"]
        stacked = tree_map(lambda leaf: leaf.unflatten(0, (len(clients), models)), rows)
        like = next(iter(rows.values()))
        return {"models": stacked, "from": torch.tensor(sources).to(like)}

    def received(view: View) -> list[Model]:
        buffers, others = view.received.buffers, view.download["models"]
        each = [Model({name: leaf[m] for name, leaf in others.items()}, buffers) for m in range(models)]
        return [view.received, *each]

    def losses() -> Measure:
        def init(model: Model, view: View) -> Slot:
            return {"sum": view.facts.samples.new_zeros(1 + models), "rows": view.facts.samples.new_zeros(())}

        def add(sums: Slot, model: Model, batch: Batch, view: View) -> Slot:
            each = [
                view.task.criterion({"model": one.params}, batch, view.predict(one, batch))
                for one in received(view)
            ]
            rows = batch.mask.sum()
            return {"sum": sums["sum"] + torch.stack(each) * rows, "rows": sums["rows"] + rows}

        return Measure(init, add)

    def weights(results: Results, view: View) -> Tensor:
        measured = results[STAGE].measured
        own, others = view.received.params, view.download["models"]
        apart = torch.stack([((others[n] - own[n]) ** 2).flatten(1).sum(1) for n in own]).sum(0).sqrt()
        return mixing_weights(measured["sum"] / measured["rows"].clamp(min=1), apart)

    def mixed(trees: Trees, results: Results, view: View) -> Trees:
        own, others, weight = trees[0]["model"], view.download["models"], weights(results, view)
        share = weight / torch.where(weight.sum() > 0, weight.sum(), 1)
        moved = {n: own[n] + torch.tensordot(share, others[n] - own[n], 1) for n in own}
        return {**trees[0], "model": moved}, trees[1]

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        judge = Stage(STAGE, NAME, measure=losses(), split="valid")
        main = next(stage for stage in plan.before if stage.name == "main")
        rest = tuple(replace(s, owner=NAME, start=mixed) if s is main else s for s in plan.before)
        return plan._replace(before=(judge, *rest))

    def upload(results: Results, view: View) -> Message:
        helped = weights(results, view)
        value = {"model": results[UPLOAD].params["model"], "weights": helped, "from": view.download["from"]}
        return Message(value, torch.ones_like(view.facts.weight))

    def keep(uploaded: Uploaded, view: ServerView) -> tuple[Slot, Slot]:
        before = view.kept.rows(uploaded.clients)["affinity"]
        sources = uploaded.value["from"].clamp(0, before.shape[1] - 1).long()  # whatever a client says
        helped = before.scatter_add(1, sources, uploaded.value["weights"])
        return {"model": uploaded.value["model"], "affinity": helped}, view.slot

    return Part(
        NAME,
        init_kept=init_kept,
        keep=keep,
        personal_download=personal_download,
        stages=stages,
        upload=upload,
        reveals=True,
        needs_validation=True,
        roles=("main stage", "uploaded models"),
    )
