"""The official test set shared out to the clients by the classes they train on.

    client u receives floor(m_c n_uc / sum_v n_vc) test rows of class c     n_uc training rows, m_c test rows

Equal shares of a class in training are equal shares in testing, as in Arivazhagan et al. (FedPer), 2019,
https://arxiv.org/abs/1912.00818, section 4.1, whose clients hold k classes; the paper gives the numbers of training and
test samples and not how the latter are assigned.
"""

from __future__ import annotations

import numpy as np

from idiolect.core.seeds import derive
from idiolect.errors import UserError
from idiolect.federation.splits import Rows
from idiolect.partition.hand_out import hand_out

__all__ = ["share_out"]


def share_out(train_counts: np.ndarray, test_y: np.ndarray, *, seed: int) -> list[Rows]:
    """Disjoint rows of the test set for each client; a client left without any is refused by name.

    Args:
        train_counts: [clients, classes] rows that each client holds.
        test_y: labels of the test rows to be shared out; what no equal share takes stays with the server alone.
    """
    n_classes = train_counts.shape[1]
    random = np.random.default_rng(derive(seed, "official test"))
    rows_of_class = [random.permutation(np.flatnonzero(test_y == c)) for c in range(n_classes)]
    sizes = np.array([len(rows) for rows in rows_of_class])
    counts = train_counts * sizes // np.maximum(train_counts.sum(axis=0), 1)
    clients, _ = hand_out(rows_of_class, counts)
    for client, rows in enumerate(clients):
        if len(rows) == 0:
            raise UserError(
                f"client {client} gets none of the {len(test_y)} samples of the official test set; use fewer clients, "
                "or set client_test to split"
            )
    return [np.sort(rows) for rows in clients]
