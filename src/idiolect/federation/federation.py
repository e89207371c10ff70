"""The federation: every client's rows in one pool of examples, and the server's own test set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from idiolect.core.seeds import derive
from idiolect.data import CLASS_TASKS, Dataset
from idiolect.errors import UserError
from idiolect.federation.clients import Clients
from idiolect.federation.preprocessing import Preprocessing, fit_preprocessing
from idiolect.federation.selection import newcomers_last
from idiolect.federation.splits import split_client
from idiolect.partition import Partition, RowNumbers, allocate_rows

__all__ = ["Federation", "LaterRows", "SplitRules", "federate"]

Allocate = Callable[[tuple[int, ...], type[np.generic]], NDArray[Any]]


class LaterRows(NamedTuple):
    """The rows that clients hold from a round on, counted from 0."""

    first: int
    clients: Clients


@dataclass(frozen=True)
class Federation:
    """The data of all clients and of the server.

    Args:
        x, y: the pool that rows point into; x is preprocessed rows, float32, or tokens, int64; y is classes, int64, or
            labels or standardised targets, float32 [N, K].
        server_x, server_y: the official test set, which no client trains on; where the data have none, the test
            parts of all clients together.
        clients: any sequence of ``ClientRows``; kept packed.
        newcomers: the partition's numbers of the clients that never train; they come last and are not part of the
            population.
        task: what the targets are, one of ``data.TASKS``.
        preprocessing: what was done to rows and targets.
        names: by client, what the data call it; empty where they name no owners.
        later: rows that clients hold in later rounds, in the order of the rounds; none where they never change.
        disturbed: (disturbance, clients) whose data it changed.
    """

    x: NDArray[Any]  # [N, ...]
    y: NDArray[Any]  # [N] or [N, K]
    server_x: NDArray[Any]
    server_y: NDArray[Any]
    n_classes: int
    clients: Clients
    public: RowNumbers  # rows of the pool without labels, for the server to train on
    newcomers: tuple[int, ...] = ()
    task: str = "classification"
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    names: tuple[int | str, ...] = ()
    later: tuple[LaterRows, ...] = ()
    disturbed: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.clients, Clients):
            object.__setattr__(self, "clients", Clients(self.clients))

    @property
    def population(self) -> int:
        return len(self.clients) - len(self.newcomers)

    def at(self, round: int) -> Federation:
        """Returns the federation as it is in a round counted from 0: the same pool, and the rows of that time."""
        if not self.later:
            return self
        held = [self.clients, *(rows.clients for rows in self.later if rows.first <= round)][-1]
        return replace(self, clients=held, later=())

    def noting(self, disturbance: str, clients: tuple[int, ...]) -> Federation:
        """Returns the federation with a note of whose data a disturbance changed."""
        return replace(self, disturbed=(*self.disturbed, (disturbance, clients)))

    def called(self, client: int) -> str:
        """Returns what an error calls a client."""
        return f"client {self.names[client]!r}" if self.names else f"client {client}"

    def class_counts(self, split: str = "train") -> NDArray[np.int64]:
        """Counts the labels of each client's rows in a split: [clients, classes]; zeros where the task has none."""
        if self.task in CLASS_TASKS:
            return self.clients.class_counts(self.y, self.n_classes, split)
        if self.task == "multilabel":
            rows = (getattr(client, split) for client in self.clients)
            return np.stack([self.y[held].sum(axis=0).astype(np.int64) for held in rows])
        return np.zeros((len(self.clients), self.n_classes), np.int64)


@dataclass(frozen=True)
class SplitRules:
    """How the rows of clients and the official test set are split.

    Args:
        valid, test: shares of each client's rows.
        client_test: ``split`` takes a client's test rows from its own; ``official`` shares the official test set out.
        public: samples of the official test set that the server may use without their labels.
        public_in_test: keeps them in the server's test set as well.
        newcomers: how many clients, drawn by the seed, never train; they are numbered last.
    """

    valid: float
    test: float
    client_test: str = "split"
    public: int = 0
    public_in_test: bool = False
    newcomers: int = 0


def federate(
    dataset: Dataset, partition: Partition, rules: SplitRules, *, seed: int, allocate: Allocate = np.empty
) -> Federation:
    """Builds a federation: splits every client's rows, and refuses a client without rows by name.

    Args:
        allocate: (shape, dtype) -> the memory of the pool, for example memory shared with other processes.
    """
    _refuse_impossible(dataset, partition, rules)
    public, newcomers = rules.public, rules.newcomers
    numbered = newcomers_last(len(partition.clients), newcomers, seed=seed)
    order = np.random.default_rng(derive(seed, "public")).permutation(len(dataset.test_y))
    seen, kept = np.sort(order[:public]), np.sort(order if rules.public_in_test else order[public:])
    split = (
        split_client(
            dataset,
            partition.clients[client],
            client,
            valid=rules.valid,
            test=rules.test,
            seed=seed,
            name=_name(partition, client),
        )
        for client in numbered
    )
    pool_x, pool_y = (
        [dataset.train_x, dataset.test_x[seen]],
        [dataset.train_y, np.zeros_like(dataset.test_y[seen])],
    )
    if rules.client_test == "official":
        shares = _official_shares(dataset, partition, kept, seed)
        first = len(dataset.train_y) + public
        split = (
            rows._replace(test=first + shares[client]) for rows, client in zip(split, numbered, strict=True)
        )
        pool_x, pool_y = [*pool_x, dataset.test_x[kept]], [*pool_y, dataset.test_y[kept]]
    clients = Clients(split)
    fitted = fit_preprocessing(dataset, clients, len(clients) - newcomers)
    x, y = _ready(dataset, fitted, *pool_x, allocate=allocate), fitted.targets(np.concatenate(pool_y))
    official = len(dataset.test_y) > 0
    tested = kept if official else np.concatenate([rows.test for rows in clients])
    return Federation(
        x=x,
        y=y,
        server_x=_ready(dataset, fitted, dataset.test_x[tested]) if official else x[tested],
        server_y=fitted.targets(dataset.test_y[tested]) if official else y[tested],
        n_classes=dataset.n_classes,
        clients=clients,
        public=np.arange(len(dataset.train_y), len(dataset.train_y) + public),
        newcomers=tuple(numbered[len(numbered) - newcomers :]),
        task=dataset.task,
        preprocessing=fitted,
        names=tuple(partition.ids[client] for client in numbered) if partition.ids else (),
    )


def _name(partition: Partition, client: int) -> str:
    """Returns what an error calls a client."""
    return f"client {partition.ids[client]!r}" if partition.ids else f"client {client}"


def _refuse_impossible(dataset: Dataset, partition: Partition, rules: SplitRules) -> None:
    valid, test, public = rules.valid, rules.test, rules.public
    if valid < 0 or test < 0 or valid + test >= 1:
        raise UserError(
            f"splits valid={valid} and test={test} must be at least 0 and leave room for training"
        )
    for client, rows in enumerate(partition.clients):
        if len(rows) == 0:
            raise UserError(f"client {client} has no data; use fewer clients or another partition")
    if public and public >= len(dataset.test_y):
        raise UserError(
            f"public is {public} but the server's test set has only {len(dataset.test_y)} samples; give fewer, "
            "or use a method without public data"
        )
    if dataset.groups is not None and not partition.ids:
        _refuse_spread_groups(dataset.groups, partition)


def _refuse_spread_groups(groups: NDArray[np.integer], partition: Partition) -> None:
    """Refuses a group that the partition shares out: one client would train on it and another test on it."""
    held = [np.unique(groups[rows]) for rows in partition.clients]
    if sum(map(len, held)) > len(np.unique(np.concatenate(held))):
        raise UserError(
            "the partition shares the rows of one group out among several clients, so that some would train on it and "
            "others test on it; name the client of each row, leave out the split by group, or use a partition that "
            "keeps groups whole"
        )


def _official_shares(dataset: Dataset, partition: Partition, kept: RowNumbers, seed: int) -> list[RowNumbers]:
    """Returns each client's places in ``kept``, the rows of the official test set."""
    if not len(dataset.test_y):
        raise UserError(f"dataset {dataset.name!r} has no official test set; set client_test to split")
    if not dataset.has_classes:
        raise UserError(
            f"the official test set is shared out by class and {dataset.task} has none; set client_test to split"
        )
    if partition.ids:
        raise UserError(
            f"the clients are the owners that dataset {dataset.name!r} names, and its official test set names none; "
            "set client_test to split"
        )
    labels = [dataset.train_y[rows] for rows in partition.clients]
    counts = np.stack([np.bincount(label, minlength=dataset.n_classes) for label in labels])
    return _share_official_test(counts, dataset.test_y[kept], seed=seed)


def _share_official_test(
    train_counts: NDArray[np.int64], test_y: NDArray[np.int64], *, seed: int
) -> list[RowNumbers]:
    """Shares the official test set out to the clients by the classes they train on.

        client u receives floor(m_c n_uc / sum_v n_vc) test rows of class c     n_uc training rows, m_c test rows

    Equal shares of a class in training are equal shares in testing, as in Arivazhagan et al. (FedPer), 2019,
    https://arxiv.org/abs/1912.00818, section 4.1, whose clients hold k classes; the paper gives the numbers of training
    and test samples and not how the latter are assigned.  A client that gets no row is refused by name.

    Args:
        train_counts: [clients, classes] rows that each client holds.
        test_y: labels of the test rows to be shared out; rows that no share takes stay with the server.
    """
    n_classes = train_counts.shape[1]
    random = np.random.default_rng(derive(seed, "official test"))
    rows_of_class = [random.permutation(np.flatnonzero(test_y == c)) for c in range(n_classes)]
    sizes = np.array([len(rows) for rows in rows_of_class])
    counts = train_counts * sizes // np.maximum(train_counts.sum(axis=0), 1)
    clients, _ = allocate_rows(rows_of_class, counts)
    for client, rows in enumerate(clients):
        if len(rows) == 0:
            raise UserError(
                f"client {client} gets none of the {len(test_y)} samples of the official test set; use fewer clients, "
                "or set client_test to split"
            )
    return [np.sort(rows) for rows in clients]


def _ready(
    dataset: Dataset, fitted: Preprocessing, *parts: NDArray[Any], allocate: Allocate = np.empty
) -> NDArray[Any]:
    """Preprocesses the parts one after the other into one array, without a second copy of the pool."""
    filled = [part for part in parts if len(part)]
    if dataset.is_tokens:
        return filled[0] if len(filled) == 1 else np.concatenate(filled)
    ready = allocate((sum(map(len, filled)), *dataset.shape), np.float32)
    done = 0
    for part in filled:
        fitted.rows(part, out=ready[done : done + len(part)])
        done += len(part)
    return ready
