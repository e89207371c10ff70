"""What a dataset of the user's own holds, what looks like a leak in it, and what a run would refuse.

    label skew = mean over clients c of 1/2 sum_k |p_c(k) - p(k)|        p(k) the share of class k in all rows

A suspicion is cheap to compute and may be wrong: it names what to look at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from idiolect.data.dataset import SPLITS, Array, Dataset
from idiolect.data.own.columns import source_columns

__all__ = ["ClientCheck", "DataCheck", "check_data"]

MOST_COLUMNS = 1000  # wider rows are not searched column by column
FEWEST_ROWS = 10  # fewer rows say nothing about a column
SAMPLED_ROWS = (
    500  # of one client or two, and as many of all, that tell whether a column is worth a look at all rows
)
SAMPLED_PAIRS = 100  # of rows that follow each other
SHORTEST_WINDOW = 8


@dataclass(frozen=True)
class ClientCheck:
    """One client: its rows, its rows of each class, and its rows of each split where that is given."""

    name: str
    rows: int
    classes: dict[str, int]
    splits: dict[str, int]


@dataclass(frozen=True)
class DataCheck:
    """What `check_data` found.

    Args:
        label_skew: mean total variation distance between the clients' classes and those of all rows; None without
            clients or classes.
        missing: missing values by column, where there are any.
        constant: columns with one value.
        suspicions: sentences about what could be a leak.
        remarks: sentences about what a run takes, but its user should know.
        refusals: sentences about what a run would refuse.
    """

    name: str
    task: str
    rows: int
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    clients: tuple[ClientCheck, ...]
    label_skew: float | None
    missing: dict[str, int]
    constant: tuple[str, ...]
    suspicions: tuple[str, ...]
    remarks: tuple[str, ...]
    refusals: tuple[str, ...]


def check_data(dataset: Dataset, *, fill: str = "none", valid: float = 0.2, test: float = 0.2) -> DataCheck:
    """Returns what a dataset holds and what is doubtful about it.

    Args:
        dataset: read with some filling, so that missing values are no reason to refuse it here.
        fill: what a run would fill missing values with.
        valid, test: the shares of a client's rows that a run would hold out.
    """
    names, owner = _owners(dataset)
    clients = _clients(dataset, names, owner)
    missing = _missing(dataset)
    columns = _columns(dataset)
    origins = source_columns(dataset.feature_names, dataset.manifest) or columns
    sources = dict(zip(origins, columns.values(), strict=False))
    constant = tuple(name for name, values in columns.items() if _is_constant(values))
    suspicions = [
        *_repeated_rows(dataset, owner),
        *_windows(dataset, owner),
        *(
            sentence
            for name, values in columns.items()
            if name not in constant
            for sentence in _suspect_column(name, values, dataset, owner, len(names))
        ),
    ]
    return DataCheck(
        name=dataset.name,
        task=dataset.task,
        rows=len(dataset.train_y),
        shape=dataset.shape,
        class_names=dataset.class_names,
        clients=clients,
        label_skew=_label_skew(dataset, owner, len(names)),
        missing=missing,
        constant=constant,
        suspicions=tuple(suspicions),
        remarks=tuple(_remarks(clients, sources, owner)),
        refusals=tuple(_refusals(dataset, clients, owner, missing, fill, valid, test)),
    )


def _owners(dataset: Dataset) -> tuple[list[str], Array]:
    """Returns the names of the clients, and the number of each row's client; no names without owners."""
    if dataset.train_ids is None:
        return [], np.zeros(len(dataset.train_y), np.int64)
    names, owner = np.unique(dataset.train_ids, return_inverse=True)
    return [str(name) for name in names.tolist()], owner


def _clients(dataset: Dataset, names: Sequence[str], owner: Array) -> tuple[ClientCheck, ...]:
    count = max(len(names), 1)
    by_class = _counts(owner, dataset.train_y, count, dataset.n_classes) if dataset.has_classes else None
    by_split = None if dataset.splits is None else _counts(owner, dataset.splits, count, len(SPLITS))
    labels = dataset.class_names or tuple(str(k) for k in range(dataset.n_classes))
    return tuple(
        ClientCheck(
            name=name,
            rows=int(rows),
            classes={} if by_class is None else _named(labels, by_class[number]),
            splits={} if by_split is None else dict(zip(SPLITS, by_split[number].tolist(), strict=True)),
        )
        for number, (name, rows) in enumerate(zip(names, np.bincount(owner), strict=False))
    )


def _counts(owner: Array, values: Array, owners: int, different: int) -> Array:
    """Returns how often each owner has each value, [owners, different]."""
    pairs = owner * different + values.astype(np.int64)
    return np.bincount(pairs, minlength=owners * different).reshape(owners, different)


def _named(labels: Sequence[str], counts: Array) -> dict[str, int]:
    return {labels[k]: int(counts[k]) for k in np.flatnonzero(counts).tolist()}


def _label_skew(dataset: Dataset, owner: Array, clients: int) -> float | None:
    if not clients or not dataset.has_classes:
        return None
    counts = _counts(owner, dataset.train_y, clients, dataset.n_classes)
    shares = counts / counts.sum(axis=1, keepdims=True)
    pooled = counts.sum(axis=0) / counts.sum()
    return float(np.abs(shares - pooled).sum(axis=1).mean() / 2)


def _columns(dataset: Dataset) -> dict[str, Array]:
    """Returns the columns of a table by name; none for rows of other shapes."""
    x = dataset.train_x
    if x.ndim != 2 or dataset.is_tokens or dataset.inputs or x.shape[1] > MOST_COLUMNS:
        return {}
    names = dataset.feature_names or [f"column {k}" for k in range(x.shape[1])]
    return {name: x[:, k] for k, name in enumerate(names)}


def _missing(dataset: Dataset) -> dict[str, int]:
    """Returns how many values are missing in each column, or in the rows as a whole where they are no table."""
    x = dataset.train_x
    if x.dtype != np.float32:
        return {}
    lost = np.isnan(x)
    if x.ndim != 2:
        return {"rows": int(lost.sum())} if lost.any() else {}
    names = source_columns(dataset.feature_names, dataset.manifest) or [
        f"column {k}" for k in range(x.shape[1])
    ]
    return {name: int(n) for name, n in zip(names, lost.sum(axis=0), strict=True) if n}


def _is_constant(values: Array) -> bool:
    known = values[~np.isnan(values)]
    return not len(known) or bool((known == known[0]).all())


def _repeated_rows(dataset: Dataset, owner: Array) -> list[str]:
    """Finds identical rows, which may lie in several splits or belong to several clients."""
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in dataset.train_x]
    _, same, sizes = np.unique(
        np.frombuffer(b"".join(digests), np.uint64), return_inverse=True, return_counts=True
    )
    repeated = int((sizes[same] > 1).sum())
    if not repeated:
        return []
    found = []
    if dataset.splits is not None:
        trained = np.bincount(same, dataset.splits == 0, len(sizes)) > 0
        leaked = int((trained[same] & (dataset.splits > 0)).sum())
        if leaked:
            found.append(
                f"{leaked} validation or test rows are identical to training rows; remove them from one split"
            )
    elif dataset.groups is None and dataset.times is None:
        found.append(
            f"{repeated} rows are identical to another row, and a split at random may put such rows into training "
            "and test; remove them, or keep them together with --split-by group:COLUMN"
        )
    first = np.full(len(sizes), -1)
    first[same] = owner
    shared = int((np.bincount(same, first[same] != owner, len(sizes))[same] > 0).sum())
    if shared:
        found.append(
            f"{shared} rows are identical to a row of another client; check that clients share no rows"
        )
    return found


def _windows(dataset: Dataset, owner: Array) -> list[str]:
    """Finds rows that begin inside the row before them, as windows of a signal that overlap do."""
    x = dataset.train_x
    if x.ndim not in (2, 3) or x.shape[-1] < SHORTEST_WINDOW or dataset.groups is not None or dataset.inputs:
        return []
    follows = np.flatnonzero(owner[1:] == owner[:-1])
    pairs = follows[np.linspace(0, len(follows) - 1, min(SAMPLED_PAIRS, len(follows))).astype(int)]
    steps = [step for step in (_step(x[i], x[i + 1]) for i in pairs.tolist()) if step]
    if len(steps) < max(len(pairs) / 5, 2):
        return []
    step, length = int(np.median(steps)), x.shape[-1]
    return [
        f"rows look like windows of {length} values that overlap (the next begins {step} values later), so that a "
        "test row "
        "shares values with training rows; keep windows of one recording together with --split-by group:COLUMN"
    ]


def _step(row: Array, after: Array) -> int:
    """Returns by how many values a row begins later than the one before it; 0 where they do not overlap."""
    length = row.shape[-1]
    lines, later = row.reshape(-1, length), after.reshape(-1, length)
    starts = np.flatnonzero(lines[0, 1 : length * 3 // 4] == later[0, 0]) + 1
    for start in starts[:16].tolist():
        shared = lines[:, start:]
        if (shared != shared[:, :1]).any() and np.array_equal(shared, later[:, : length - start]):
            return int(start)
    return 0


def _suspect_column(name: str, values: Array, dataset: Dataset, owner: Array, clients: int) -> list[str]:
    """Finds a column that numbers the rows, names the client, or gives the label away."""
    if len(values) < FEWEST_ROWS or np.isnan(values).any():
        return []
    neighbours, spread = np.arange(len(values))[:SAMPLED_ROWS], np.linspace(0, len(values) - 1, SAMPLED_ROWS)
    some = np.unique(np.concatenate([neighbours, spread.astype(int)]))
    if not any(_gives_away(values[some], dataset, owner[some], some)):
        return []  # what holds for all rows holds for some of them
    numbers_rows, names_client, gives_label = _gives_away(values, dataset, owner, np.arange(len(values)))
    if numbers_rows and values.max() - values.min() == len(values) - 1:
        return [f"{name!r} has another whole number in every row, as a row number has; remove it"]
    if names_client and clients > 1:
        return [
            f"{name!r} has one value in each client and another in every client, so that it names the client; remove "
            "it"
        ]
    if gives_label:
        return [f"{name!r} alone determines the label; remove it if it is not known before the label is"]
    return []


def _gives_away(values: Array, dataset: Dataset, owner: Array, rows: Array) -> tuple[bool, bool, bool]:
    """Returns whether a column has a whole number for each row, one value for each client, or one label a value."""
    different, place = np.unique(values, return_inverse=True)
    owners = len(np.unique(owner))
    pairs = len(np.unique(place * (int(owner.max()) + 1) + owner))
    is_whole = bool((different == np.round(different)).all())
    return (
        is_whole and len(different) == len(values),
        len(different) == owners == pairs,
        _determines_label(values, place, len(different), dataset, dataset.train_y[rows]),
    )


def _determines_label(values: Array, place: Array, different: int, dataset: Dataset, y: Array) -> bool:
    """Returns whether each value, or each range of values, of a column has one label; linearly for target numbers."""
    if dataset.task == "regression":
        deviations = [float(np.std(values)), *np.std(y, axis=0).tolist()]
        table = np.column_stack([values, y])
        correlated = np.corrcoef(table, rowvar=False)[0, 1:] if min(deviations) > 0 else [0.0]
        return bool(np.abs(correlated).max() > 0.99999)
    if not dataset.has_classes:
        return False
    if len(np.unique(place * dataset.n_classes + y)) > different:
        return False
    changes = int((np.diff(y[np.argsort(values, kind="stable")]) != 0).sum())
    return different * 4 <= len(values) or changes == len(np.unique(y)) - 1


def _remarks(clients: Sequence[ClientCheck], columns: dict[str, Array], owner: Array) -> list[str]:
    found = []
    if not clients:
        found.append(
            "no column names the client of a row, so that --partition shares the rows out; or give --client-column"
        )
    single = [client.name for client in clients if len(client.classes) == 1]
    if single:
        found.append(f"{_some(single)} {'has' if len(single) == 1 else 'have'} rows of one class only")
    for name, values in columns.items():
        known = np.bincount(owner, ~np.isnan(values), len(clients))
        without = [client.name for client, count in zip(clients, known, strict=False) if not count]
        if without:
            found.append(
                f"{_some(without)} {'has' if len(without) == 1 else 'have'} no value of {name!r} at all"
            )
    return found


def _refusals(
    dataset: Dataset,
    clients: Sequence[ClientCheck],
    owner: Array,
    missing: dict[str, int],
    fill: str,
    valid: float,
    test: float,
) -> list[str]:
    found = []
    if missing and fill == "none":
        count = sum(missing.values())
        lost = "1 value is" if count == 1 else f"{count} values are"
        found.append(f"{lost} missing; give --fill mean, zero or a number")
    if dataset.splits is not None:
        return found + _refused_splits(clients, valid)
    if dataset.groups is not None and not clients and len(np.unique(dataset.groups)) < len(dataset.groups):
        found.append(
            "a partition would share the rows of a group out among clients, and some would train on what others test "
            "on; give --client-column"
        )
    needed = 1 + (valid > 0) + (test > 0)
    if dataset.groups is not None:
        pairs = np.unique(np.column_stack([owner, dataset.groups]), axis=0)
        groups = np.bincount(pairs[:, 0], minlength=len(clients))
        few = [client.name for client, held in zip(clients, groups, strict=False) if held < needed]
        what = "groups"
    else:
        few, what = [client.name for client in clients if client.rows < needed], "rows"
    if few:
        found.append(
            f"{_some(few)} {'has' if len(few) == 1 else 'have'} fewer than the {needed} {what} that a split needs"
        )
    return found


def _refused_splits(clients: Sequence[ClientCheck], valid: float) -> list[str]:
    """Returns what a run would refuse about a split that is given; without validation rows some are held out."""
    held_out = valid > 0 and not any(client.splits["valid"] for client in clients)
    found = []
    for part, word, needed in (("train", "training", 1 + held_out), ("test", "test", 1)):
        without = [client.name for client in clients if not client.splits[part]]
        few = [client.name for client in clients if 0 < client.splits[part] < needed]
        if without:
            found.append(
                f"the given split leaves {_some(without)} without {word} rows; add some, or leave them out"
            )
        if few:
            found.append(
                f"the given split leaves {_some(few)} with one {word} row, and validation takes it; add some"
            )
    return found


def _some(names: Sequence[str], most: int = 5) -> str:
    """Returns names in words: client a; clients a, b and 3 more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"client{'s' if len(names) > 1 else ''} {', '.join(names[:most])}{more}"
