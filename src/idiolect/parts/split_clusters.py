"""Split clusters: the server splits a cluster of clients whose updates have come to contradict each other (CFL).

Delta_i = theta_i^+ - theta_c,   theta_c <- theta_c + Delta_c,   Delta_c = sum_{i in c} p_i Delta_i     in cluster c
c_1, c_2 = argmin alpha over all parts c_1 + c_2 = c,   alpha = max_{i in c_1, j in c_2} cos(Delta_i, Delta_j)
c splits into c_1 and c_2 if ||Delta_c|| < eps_1,  max_{i in c} ||Delta_i|| > eps_2  and  sqrt((1 - alpha) / 2) > gamma
Sattler, Mueller, Samek, IEEE TNNLS 2021, algorithms 1 and 3, https://arxiv.org/abs/1910.01991
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from idiolect.core import Flat, Initial, Part, Predictor, Results, ServerView, Slot, Uploaded, View
from idiolect.core.part import keeps_options
from idiolect.core.trees import zeros_like
from idiolect.errors import refuse_outside
from idiolect.parts.average import average
from idiolect.parts.model_vectors import as_models, as_vectors

__all__ = ["bipartition", "split_clusters"]

FEWEST = 3  # uploads of a round on which a cluster is split


def bipartition(similarity: Tensor) -> Tensor:
    """Returns which clients are in the second of the two parts whose members are least alike across the parts.

    No two parts have a smaller largest similarity across them.  They are what is left when the most similar parts are
    joined until two remain.  The first part holds the first client.

    Args:
        similarity: [C, C], symmetric.
    """
    left = len(similarity)
    part = list(range(left))
    pairs = torch.triu_indices(left, left, 1).T
    order = torch.argsort(similarity[pairs[:, 0], pairs[:, 1]].cpu(), descending=True, stable=True)
    for i, j in pairs[order].tolist():
        if left > 2 and part[i] != part[j]:
            part = [part[i] if p == part[j] else p for p in part]
            left -= 1
    return torch.tensor([p != part[0] for p in part])


def placed(cluster: Tensor, splits: Tensor, update: Tensor, slot: Slot) -> Tensor:
    """Returns the clusters [C] of clients by their last updates [C, P], where clusters were split since.

    Args:
        cluster, splits: [C] the cluster of each client when it was last placed, and how many there were then.
    """
    directions = as_vectors(slot["direction"])
    for new in range(1, int(slot["count"])):
        moves = (cluster == slot["parent"][new]) & (splits <= new) & (update @ directions[new] > 0)
        cluster = torch.where(moves, float(new), cluster)
    return cluster


@keeps_options
def split_clusters(
    mean_norm: float = 2.0, client_norm: float = 0.5, gamma: float = 0.75, clusters: int = 8
) -> Part:
    """Begins with one cluster of all clients, and sends each client the model of its cluster.

    Args:
        mean_norm: eps_1 >= 0, below which a cluster's mean update counts as none; 0 never splits, which is FedAvg.
        client_norm: eps_2 >= 0, above which a client still wants to move.
        gamma: gamma_max in [0, 1], how far apart two parts must be; 0 splits whatever their distance.
        clusters: >= 1, the most that are made; the server holds two models for each in memory.

    Deviations: a cluster is split on the uploads of one round, if there are at least three; where only some clients
    take part in a round, the others go to the part whose mean update is more like their own last one.  A
    client not heard from is in the first cluster until its first upload places it.  The server's shared model is the
    mean of the uploads; no client trains from it.  Running statistics are shared as the setting ``buffers`` says.
    """
    refuse_outside("mean_norm (eps_1)", mean_norm, 0)
    refuse_outside("client_norm (eps_2)", client_norm, 0)
    refuse_outside("gamma (gamma_max)", gamma, 0, 1)
    refuse_outside("clusters", clusters, 1)
    plain = average()

    def init_server(shared: Flat, initial: Initial) -> Slot:
        models = {name: torch.stack([leaf] * clusters) for name, leaf in shared.items()}
        like = next(iter(shared.values()))
        return {
            "models": models,
            "direction": zeros_like(models),
            "parent": like.new_zeros(clusters),
            "count": like.new_ones(()),
        }

    def init_kept(initial: Initial, population: int) -> Slot:
        zero = next(iter(initial.params.values())).new_zeros(())
        return {"update": zeros_like(initial.params), "cluster": zero, "splits": zero}

    def parts_of(updates: Tensor, mean: Tensor) -> Tensor | None:
        """Returns which members [C] of a cluster leave it, or None where it stays as it is."""
        norms = updates.norm(dim=1)
        if len(updates) < FEWEST or mean.norm() >= mean_norm or norms.max() <= client_norm:
            return None
        units = updates / norms.clamp(min=1e-12)[:, None]
        similarity = units @ units.T
        leaving = bipartition(similarity).to(updates.device)
        alpha = similarity[~leaving][:, leaving].max().clamp(max=1)
        return leaving if ((1 - alpha) / 2).sqrt() > gamma else None

    def keep(uploaded: Uploaded, view: ServerView) -> tuple[Slot, Slot]:
        kept, slot = view.kept.rows(uploaded.clients), view.slot
        models, directions = as_vectors(slot["models"]).clone(), as_vectors(slot["direction"]).clone()
        parent, count = slot["parent"].clone(), int(slot["count"])
        sent = placed(kept["cluster"], kept["splits"], as_vectors(kept["update"]), slot)
        updates = as_vectors(uploaded.value) - models[sent.long()]
        unheard = kept["splits"] == 0
        cluster = torch.where(unheard, placed(kept["cluster"], kept["splits"], updates, slot), sent)
        for number in range(count):
            members = ((sent == number) & (cluster == number)).nonzero().flatten()
            if not len(members):
                continue
            weight = uploaded.weight[members].to(updates)
            mean = weight @ updates[members] / weight.sum()
            models[number] += mean
            leaving = parts_of(updates[members], mean)
            if leaving is None or count == clusters:
                continue
            units = torch.nn.functional.normalize(updates[members])
            directions[count] = units[leaving].mean(0) - units[~leaving].mean(0)
            models[count], parent[count] = models[number], number
            cluster[members[leaving]] = float(count)
            count += 1
        like = view.shared.params
        row = {
            "update": as_models(updates, like),
            "cluster": cluster,
            "splits": torch.full_like(cluster, count),
        }
        return row, {
            "models": as_models(models, like),
            "direction": as_models(directions, like),
            "parent": parent,
            "count": torch.full_like(slot["count"], count),
        }

    def personal_download(clients: Sequence[int], view: ServerView) -> Slot:
        kept = view.kept.rows(clients)
        cluster = placed(kept["cluster"], kept["splits"], as_vectors(kept["update"]), view.slot)
        own = {name: leaf[cluster.long()] for name, leaf in view.slot["models"].items()}
        return {"params": own, "cluster": cluster}

    def predictors(view: View, results: Results | None) -> dict[str, Predictor]:
        assert plain.predictors is not None
        found: dict[str, Predictor] = plain.predictors(view, results)
        found.pop("global", None)  # what the client received is its cluster's
        return {**found, "composed": Predictor.of(view.current)}

    def remarks(view: View) -> dict[str, Tensor]:
        return {"cluster": view.download["cluster"]}

    return plain._replace(
        name="split_clusters",
        init_server=init_server,
        init_kept=init_kept,
        keep=keep,
        personal_download=personal_download,
        predictors=predictors,
        remarks=remarks,
        scored_with_download=True,
        needs_whole=True,
        roles=("server update", "client clusters", "composed predictor"),
        headline="composed",
        gives_way=False,
    )
