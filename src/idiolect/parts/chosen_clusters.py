"""Chosen clusters: the server has k models, and each client trains the one that has the lowest loss on its data (IFCA).

j_i = argmin_j F_i(theta_j) on the training rows of client i,   s_ij = 1{j = j_i}
theta_i^+ = local training from theta_{j_i},   Delta_i = theta_i^+ - theta_{j_i}
model      theta_j <- theta_j + sum_i p_i s_ij Delta_i / sum_i p_i s_ij        a cluster that nobody chose stays
gradient   theta_j <- theta_j + sum_i p_i s_ij Delta_i / sum_i p_i,            Delta_i = -gamma grad F_i(theta_{j_i})
Ghosh, Chung, Yin, Ramchandran, NeurIPS 2020, algorithm 1, options II and I, https://arxiv.org/abs/2006.04088
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from idiolect.core import (
    UPLOAD,
    Batch,
    Clock,
    Flat,
    GatherView,
    Initial,
    Measure,
    Message,
    Messages,
    Model,
    Part,
    Plan,
    Predictor,
    Results,
    Scene,
    Slot,
    Stage,
    Structure,
    Trees,
    View,
    as_received,
)
from idiolect.core.part import keeps_options
from idiolect.core.trees import pick, tree_map, where
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice
from idiolect.parts.average import average
from idiolect.parts.private_layers import own_units

__all__ = ["chosen_clusters"]

NAME = "chosen_clusters"
STAGE, LAST = "losses of the clusters", "losses of the final clusters"


@keeps_options
def chosen_clusters(clusters: int = 2, averaging: str = "model", count: int | None = None) -> Part:
    """Every client receives the models of all clusters, chooses one and trains it alone.

    Args:
        clusters: k >= 1, models, each with a random initialisation of its own; 1 is FedAvg.
        averaging: ``model``: the mean of the models that the members of a cluster trained; ``gradient``: one local
            step, and the sum over a cluster's members is divided by the whole cohort.
        count: >= 1 units, from the output, that every cluster has of its own; the others are one for all clusters, and
            everybody trains them (weight sharing); None is the whole network.

    Deviations: one random initialisation, where the paper restarts its linear models several times and keeps the best.
    Clients are scored with the cluster that they chose when they last took part;
    after the last round every client chooses once more, from the final models.  Running statistics that are
    averaged are those of a cluster, in shared layers too.  Where the one shared model is asked for, it is that of the
    first cluster.
    """
    refuse_outside("clusters (k)", clusters, 1)
    refuse_unknown_choice("averaging", averaging, ("model", "gradient"))
    if count is not None:
        refuse_outside("count", count, 1)
    plain = average()
    others = [f"cluster {number}" for number in range(2, clusters + 1)]
    is_own = own_units(count)

    def check(structure: Structure, scene: Scene) -> None:
        if count is not None and count > structure.n_units:
            raise UserError(
                f"count is {count} but the network has {structure.n_units} units; choose 1 to {structure.n_units}"
            )

    def init_server(shared: Flat, initial: Initial) -> Slot:
        drawn = {name: initial.draw(f"{NAME} {name}", False) for name in others}
        return {
            name: {
                "params": pick(model.params, lambda n: is_own(n, initial.structure)),
                "buffers": model.buffers,
            }
            for name, model in drawn.items()
        }

    def init_client(initial: Initial) -> Slot:
        return {"cluster": next(iter(initial.params.values())).new_zeros(())}

    def models(view: View) -> list[Model]:
        first, own = view.received, view.scene.buffers == "private"
        slots = [view.server[name] for name in others]
        return [
            first,
            *(Model({**first.params, **s["params"]}, first.buffers if own else s["buffers"]) for s in slots),
        ]

    def chosen(view: View, cluster: Tensor) -> Model:
        found, *rest = models(view)
        for number, model in enumerate(rest, 1):
            found = Model(
                where(cluster == number, model.params, found.params),
                where(cluster == number, model.buffers, found.buffers),
            )
        return found

    def losses() -> Measure:
        def init(model: Model, view: View) -> Slot:
            return {"sum": view.facts.samples.new_zeros(clusters)}

        def add(sums: Slot, model: Model, batch: Batch, view: View) -> Slot:
            each = [
                view.task.criterion({"model": one.params}, batch, view.predict(one, batch))
                for one in models(view)
            ]
            return {"sum": sums["sum"] + torch.stack(each) * batch.mask.sum()}

        return Measure(init, add)

    def choice(results: Results, stage: str) -> Tensor:
        """Returns the number of the cluster with the lowest loss, from 0; the first of equals."""
        sums: Tensor = results[stage].measured["sum"]
        return sums.argmin(-1).to(sums)

    def begun(trees: Trees, results: Results, view: View) -> Trees:
        model = chosen(view, choice(results, STAGE))
        return {**trees[0], "model": model.params}, {**trees[1], "model": model.buffers}

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        main = next(stage for stage in plan.before if stage.name == "main")
        own = replace(main, owner=NAME, start=begun)
        if averaging == "gradient":
            own = replace(own, steps=1, has_minimum=False)
        rest = tuple(own if stage is main else stage for stage in plan.before)
        last = Stage(LAST, NAME, as_received, measure=losses())
        return plan._replace(before=(Stage(STAGE, NAME, measure=losses()), *rest), end=(*plan.end, last))

    def upload(results: Results, view: View) -> Message:
        cluster, structure = choice(results, STAGE), view.task.structure
        trained, start = results[UPLOAD].params["model"], chosen(view, cluster).params
        update = {name: trained[name] - start[name] for name in start}
        value = {
            "shared": pick(update, lambda n: not is_own(n, structure)),
            "own": pick(update, lambda n: is_own(n, structure)),
            "choice": (torch.arange(clusters, device=cluster.device) == cluster).to(cluster),
        }
        return Message(value, view.facts.weight)

    def gather(messages: Messages, view: GatherView) -> Messages:
        """Puts the means of the clusters in the place of the uploads, as one row."""
        value, weight = {"shared": {}, "own": {}, **messages[NAME][0]}, messages[NAME][1]
        member = torch.nn.functional.one_hot(value["choice"].argmax(-1), clusters).to(weight)  # [C, k]
        shares, total = member * weight[:, None], weight.sum()
        present = shares.sum(0)  # [k]
        members = shares / torch.where(present > 0, present, 1)
        counted = members if averaging == "model" else shares / total
        row: Slot = {"shared": tree_map(lambda leaf: mean(leaf, weight / total), value["shared"])}
        statistics, found = messages.get("buffers", ({}, weight))[0], dict(messages)
        for j, name in enumerate(("cluster 1", *others)):
            row[name] = {
                "params": tree_map(lambda leaf: mean(leaf, counted[:, j]), value["own"]),  # noqa: B023
                "buffers": tree_map(lambda leaf: mean(leaf, members[:, j]), statistics),  # noqa: B023
                "present": (present[j] > 0).to(weight)[None],
            }
        if statistics:
            first = row["cluster 1"]
            kept = tree_map(lambda leaf: leaf[None], view.origin["buffers"])
            found["buffers"] = where(first["present"] > 0, first["buffers"], kept), weight.new_ones(1)
        return {**found, NAME: (row, weight.new_ones(1))}

    def merge(params: Flat, slot: Slot, mean: Slot, clock: Clock) -> tuple[Flat, Slot]:
        moved = {**mean["shared"], **mean["cluster 1"]["params"]}
        new: Slot = {}
        for name in others:
            old, found = slot[name], mean[name]
            statistics = {**old["buffers"], **found["buffers"]}
            new[name] = {
                "params": {n: leaf + found["params"][n] for n, leaf in old["params"].items()},
                "buffers": where(found["present"] > 0, statistics, old["buffers"]),
            }
        return {name: leaf + moved[name] for name, leaf in params.items()}, new

    def finish(results: Results, view: View) -> Slot:
        return {"cluster": choice(results, STAGE)}

    def personalise(results: Results, view: View) -> Slot:
        return {"cluster": choice(results, LAST)}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        assert plain.predictors is not None
        found: dict[str, Predictor] = plain.predictors(view, results)
        found.pop("global", None)  # there is no model for everybody
        own = view.current if results else chosen(view, view.private["cluster"])
        return {**found, "composed": Predictor.of(own)}

    def remarks(view: View) -> dict[str, Tensor]:
        return {"cluster": view.private["cluster"]}

    return plain._replace(
        name=NAME,
        check=check,
        init_server=init_server,
        init_client=init_client,
        stages=stages,
        upload=upload,
        origin=None,
        gather=gather,
        merge=merge,
        finish=finish,
        personalise=personalise,
        predictors=predictors,
        remarks=remarks,
        broadcasts=True,
        needs_whole=True,
        mean_alone="averages each cluster by itself, which a robust mean of all uploads would mix",
        roles=(
            "server update",
            "uploaded models",
            "client clusters",
            "main stage",
            "composed predictor",
        ),
        headline="composed",
        gives_way=False,
        overrides=("one local step in every round",) if averaging == "gradient" else (),
    )


def mean(leaf: Tensor, share: Tensor) -> Tensor:
    """Returns the sum of the rows of a leaf [C, ...] in these shares [C] as one row; of whole numbers the first row."""
    return torch.tensordot(share.to(leaf), leaf, 1)[None] if leaf.is_floating_point() else leaf[:1]
