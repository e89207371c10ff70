"""Shards of label-sorted data.

    sort by label, cut into S K shards of equal size, S shards per client

McMahan et al., AISTATS 2017, section 3, https://arxiv.org/abs/1602.05629;
Hahn et al. (SuPerFed), KDD 2022, https://arxiv.org/abs/2109.07628
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from idiolect.errors import UserError
from idiolect.partition.labelled_rows import open_pool
from idiolect.partition.option_checks import check_flag, check_whole
from idiolect.partition.partition import Partition

__all__ = ["pathological_shards"]


def pathological_shards(
    labels: ArrayLike, n_clients: int, *, seed: int, shards_per_client: int = 2, deterministic: bool = False
) -> Partition:
    """Every client holds a few shards of the data sorted by label, hence few classes.

    A client holds at most S classes where no shard crosses a class boundary, that is where every class size
    is a multiple of the shard size (CIFAR-10 with K = 100: 250).

    Args:
        labels: the label of each row.
        n_clients: K, with S K at most the number of rows.
        seed: decides who gets which shard; without effect when `deterministic`.
        shards_per_client: S >= 1 (2 in both papers).
        deterministic: client k gets shards k, k + K, ... as in SuPerFed's published code, so CIFAR-10 with K
            = 100 knows only five pairs of classes.

    Deviations: random assignment, McMahan's, is the default. Where S K does not divide the number of rows,
    shard sizes differ by one and nothing is dropped.
    """
    pool = open_pool("pathological_shards", labels, n_clients, seed)
    check_whole("pathological_shards", "shards_per_client", shards_per_client, 1)
    check_flag("pathological_shards", "deterministic", deterministic)
    n_shards = shards_per_client * n_clients
    if n_shards > pool.n_rows:
        raise UserError(
            f"pathological_shards: shards_per_client={shards_per_client} times n_clients={n_clients} makes"
            f" {n_shards} shards of {pool.n_rows} samples; the product must be at most {pool.n_rows}"
        )
    shards = np.array_split(np.concatenate(pool.rows_of_class), n_shards)
    order = np.arange(n_shards) if deterministic else pool.random.permutation(n_shards)
    shards_of_client = order.reshape(shards_per_client, n_clients).T  # [K, S]
    return Partition(tuple(np.concatenate([shards[shard] for shard in held]) for held in shards_of_client))
