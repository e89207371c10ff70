"""CFL: clustered federated learning."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import split_clusters

__all__ = ["cfl"]


def cfl(mean_norm: float = 2.0, client_norm: float = 0.5, gamma: float = 0.75, clusters: int = 8) -> Method:
    """FedAvg that splits its clients in two, and each part again, once they pull the shared model apart.

    Sattler, Mueller, Samek, IEEE TNNLS 2021, https://arxiv.org/abs/1910.01991.  The code of the authors splits by
    complete linkage; the paper's criterion, the smallest largest similarity across the parts, is met by single linkage,
    which this part uses.  Norms are those of a round's updates, so that the thresholds must fit the network,
    the learning rate and the local epochs.  The record of a run says which client is in which cluster: metric
    ``cluster``.

    The clients of the demo scene differ by degrees and form no groups: with seed 0 the default thresholds split nothing
    there, and over three seeds it ends level with FedAvg and below Local.

    Args:
        mean_norm: eps_1 >= 0, below which a cluster's mean update counts as none.
        client_norm: eps_2 >= 0, above which a client still wants to move.
        gamma: gamma_max in [0, 1], how far apart two parts must be.
        clusters: >= 1, the most that are made.
    """
    return chain(split_clusters(mean_norm, client_norm, gamma, clusters), name="cfl")


presets = {"official": {"mean_norm": 0.4, "client_norm": 1.6, "gamma": 0.0}}
