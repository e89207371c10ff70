"""IFCA: the iterative federated clustering algorithm."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import chosen_clusters

__all__ = ["ifca"]


def ifca(clusters: int = 2, averaging: str = "model", count: int | None = None) -> Method:
    """Several shared models, of which every client chooses and trains the one with the lowest loss on its data.

    Ghosh, Chung, Yin, Ramchandran, NeurIPS 2020, https://arxiv.org/abs/2006.04088

    Clusters are chosen on training data, also for scoring; the authors' code scores a test client with the model that
    has the lowest loss on its test rows.  The record of a run says which client is in which cluster: metric
    ``cluster``.  From some starts all clients choose one model, and the others never train; another seed is another
    start.  The clients of the demo scene differ by degrees and form no groups: there it ends above FedAvg and level
    with Local, 82.3 against 80.6 and 82.4 % over three seeds, because each model is trained by a part of the clients
    alone.

    Args:
        clusters: k >= 1 models.
        averaging: ``model``, or ``gradient`` after one local step.
        count: >= 1 units, from the output, that every cluster has of its own, while all share the others (weight
            sharing); None is the whole network.
    """
    return chain(chosen_clusters(clusters, averaging, count), name="ifca")


presets = {"paper": {"clusters": 4, "averaging": "model"}}
