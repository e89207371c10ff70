"""Arrays of the user's own as a `Dataset`.

Rows may have any shape and any type of number.  What the targets mean is read from them, unless a task is given:

    labels                                           task
    one column of words, booleans or whole numbers   classification, also where there are two classes
    one column of other numbers                      regression
    several columns of 0 and 1                       multilabel
    several columns of other numbers                 regression

`binary` and `next_token` have to be asked for, and so has the task where there are many different words or whole
numbers with few rows of each.  Rows are ordered by client, then by split, and otherwise stay as
given, so that the same federation has the same digest in whatever form it comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from idiolect.data.dataset import TASKS, Array, Dataset
from idiolect.data.own.columns import (
    SPLIT_WORDS,
    Place,
    Targets,
    array_of,
    check_values,
    read_names,
    read_rows,
    read_splits,
    read_targets,
    read_times,
    source_columns,
)
from idiolect.errors import UserError, refuse_unknown_choice

__all__ = ["from_arrays", "from_clients", "refuse_clients_without_rows"]


def from_arrays(
    x: Any,
    y: Any,
    *,
    client: Any = None,
    split: Any = None,
    time: Any = None,
    group: Any = None,
    task: str | None = None,
    fill: str | float = "none",
    vocabulary: int | None = None,
    name: str = "data",
    feature_names: Sequence[str] = (),
    class_names: Sequence[str] | None = None,
    manifest: Mapping[str, Any] | None = None,
    place: Place | None = None,
) -> Dataset:
    """Returns a dataset of whatever NumPy can hold.

    Args:
        x: rows [N, ...] of numbers of any type; [N] is one number a row.  uint8 rows with two axes or more are images
            on the scale 0..255.  A mapping of names to such arrays is several inputs.  Tokens need a vocabulary.
        y: labels [N], or [N, K] of several labels or target numbers.
        client: [N] words or whole numbers that name the owner of each row.
        split: [N] words train, valid (validation, val, dev) and test, or the numbers 0, 1 and 2.
        time: [N] numbers or dates; the last rows of each client become its test rows.
        group: [N] words or numbers; rows of one group stay in one split.
        task: one of `TASKS`; read from the labels by default.
        fill: what replaces missing values (NaN): none (they are refused), mean, zero or a number.
        class_names: all classes in their order, where the labels may not show them all; else names of target numbers.
        manifest: what is known about the origin; counts are added.
        place: returns how a refusal names row i.

    >>> data = from_arrays([[0.5], [1.5], [2.5]], ["b", "a", "b"], client=[1, 0, 0])
    >>> data.train_ids.tolist(), data.train_y.tolist(), data.class_names
    ([0, 0, 1], [0, 1, 1], ('a', 'b'))
    """
    place = place or (lambda row: f"{name}, row {row}")
    if task is not None:
        refuse_unknown_choice(f"{name}: task", task, TASKS)
    if vocabulary is not None and (not isinstance(vocabulary, int) or vocabulary < 1):
        raise UserError(f"{name}: vocabulary must be a whole number from 1, not {vocabulary!r}")
    rows, inputs = read_rows(x, vocabulary, name)
    if not len(rows):
        raise UserError(f"{name} has no rows; give at least one")
    check_values(rows, str(fill), source_columns(feature_names, manifest), place)
    targets = read_targets(y, task, class_names, vocabulary, name, place)
    columns = _columns(targets.y, client, split, time, group, name, place)
    for key, values in columns.items():
        if len(values) != len(rows):
            raise UserError(
                f"{name} has {len(rows)} rows but {len(values)} values of {key}; give one for each row"
            )
    rows, columns = _in_order(rows, columns)
    return Dataset(
        name=name,
        train_x=rows,
        train_y=columns["label"],
        test_x=rows[:0],
        test_y=columns["label"][:0],
        n_classes=targets.outputs,
        mean=None if vocabulary is None else (),
        std=None if vocabulary is None else (),
        manifest={
            "source": "arrays",
            **(manifest or {}),
            **_counts(len(rows), targets, columns.get("client")),
        },
        train_ids=columns.get("client"),
        vocabulary=vocabulary,
        task=targets.task,
        class_names=targets.class_names,
        feature_names=tuple(feature_names),
        inputs=inputs,
        splits=columns.get("split"),
        times=columns.get("time"),
        groups=columns.get("group"),
        fill=str(fill),
    )


def from_clients(
    clients: Mapping[Any, Any] | Sequence[Any], *, name: str = "data", **options: Any
) -> Dataset:
    """Returns a dataset of each client's own arrays.

    Args:
        clients: a sequence of (x, y), whose clients are numbered from 0, or a mapping of names to (x, y) or to
            {"train": (x, y), "valid": (x, y), "test": (x, y)}, where a part may be left out.
        options: those of `from_arrays` other than client and split.

    >>> from_clients({"a": ([[1.0], [2.0]], [0, 1]), "b": ([[3.0]], [1])}).train_ids.tolist()
    ['a', 'a', 'b']
    """
    parts, in_parts = _parts_of(clients, name)
    pairs = [_pair(f"{name}, client {key!r}", part, pair) for key, part, pair in parts]
    _check_alike(name, [key for key, _, _ in parts], pairs)
    sizes = [len(y) for _, y in pairs]
    refuse_clients_without_rows(name, [key for key, _, _ in parts], sizes)
    starts = np.cumsum([0, *sizes])

    def place(row: int) -> str:
        which = int(np.searchsorted(starts, row, side="right")) - 1
        return f"{name}, client {parts[which][0]!r}, row {row - starts[which]}"

    filled = [pair for pair in pairs if len(pair[1])] or pairs[:1]
    inputs = {key: np.concatenate([x[key] for x, _ in filled]) for key in filled[0][0]}
    options = {"place": place, **options}
    if in_parts:
        options["split"] = np.repeat([part for _, part, _ in parts], sizes)
    return from_arrays(
        inputs.get("", inputs),
        np.concatenate([y for _, y in filled]),
        client=np.repeat([key for key, _, _ in parts], sizes),
        name=name,
        **options,
    )


def _parts_of(clients: Any, name: str) -> tuple[list[tuple[Any, str, Any]], bool]:
    """Returns client, split and (x, y) of each part, and whether the clients give splits."""
    if not isinstance(clients, Mapping | Sequence) or isinstance(clients, str):
        raise UserError(
            f"{name}: clients are given as {type(clients).__name__}; give a list or a mapping of (x, y)"
        )
    named = clients if isinstance(clients, Mapping) else dict(enumerate(clients))
    if not named:
        raise UserError(f"{name} has no clients; give at least one (x, y)")
    in_parts = [key for key, value in named.items() if isinstance(value, Mapping)]
    if in_parts and len(in_parts) < len(named):
        other = next(key for key in named if key not in in_parts)
        raise UserError(
            f"{name}: client {other!r} gives no splits but client {in_parts[0]!r} does; give them for all clients"
        )
    unfit = next((key for key in named if not isinstance(key, str | int | np.integer)), None)
    if unfit is not None:
        raise UserError(f"{name}: {unfit!r} cannot name a client; name clients by words or whole numbers")
    refuse_clients_without_rows(name, in_parts, [len(named[key]) for key in in_parts])
    parts = [
        (key, str(part), pair)
        for key, value in named.items()
        for part, pair in (value.items() if in_parts else [("train", value)])
    ]
    return parts, bool(in_parts)


def refuse_clients_without_rows(name: str, clients: Sequence[Any], sizes: Sequence[int]) -> None:
    """Refuses the first client whose parts are all empty, because it would be left out without a word."""
    rows: dict[Any, int] = {}
    for client, size in zip(clients, sizes, strict=True):
        rows[client] = rows.get(client, 0) + int(size)
    without = next((client for client, count in rows.items() if not count), None)
    if without is not None:
        raise UserError(f"{name}: client {without!r} has no rows; give it some, or leave it out")


def _pair(where: str, part: str, pair: Any) -> tuple[dict[str, Array], Array]:
    """Returns a client's rows by input, "" where there is only one, and its labels."""
    if part.lower() not in SPLIT_WORDS:
        raise UserError(f"{where}: unknown split {part!r}; use train, valid and test")
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise UserError(f"{where} is given as {type(pair).__name__}; give a pair (x, y)")
    given = pair[0] if isinstance(pair[0], Mapping) else {"": pair[0]}
    x = {str(key): array_of(values, f"{where}, x") for key, values in given.items()}
    y = array_of(pair[1], f"{where}, labels")
    for values in x.values():
        if len(values) != len(y):
            raise UserError(f"{where} has {len(values)} rows but {len(y)} labels; give one for each row")
    return x, y


def _check_alike(name: str, keys: list[Any], pairs: list[tuple[dict[str, Array], Array]]) -> None:
    """Refuses clients whose rows or labels differ in shape or kind from those of the first client with rows."""
    described = [
        {key or "x": f"{list(v.shape[1:])} of {_kind(v)}" for key, v in [*x.items(), ("labels", y)]}
        for x, y in pairs
    ]
    filled = [i for i, (_, y) in enumerate(pairs) if len(y)]
    if not filled:
        raise UserError(f"{name} has no rows; give at least one")
    first = filled[0]
    for i in filled:
        if described[i] != described[first]:
            raise UserError(
                f"{name}: client {keys[i]!r} has rows {described[i]} but client {keys[first]!r} has "
                f"{described[first]}; give "
                "all clients rows of one shape and kind"
            )


def _kind(values: Array) -> str:
    return "numbers" if values.dtype.kind in "biufc" else "words" if values.dtype.kind in "US" else "objects"


def _columns(
    label: Array, client: Any, split: Any, time: Any, group: Any, name: str, place: Place
) -> dict[str, Array]:
    """Returns what is known of each row besides its numbers, by name."""
    columns: dict[str, Array] = {"label": label}
    if client is not None:
        columns["client"] = read_names(client, "client", name, place)
    if split is not None:
        columns["split"] = read_splits(split, name, place)
    if time is not None:
        columns["time"] = read_times(time, name, place)
    if group is not None:
        columns["group"] = np.unique(read_names(group, "group", name, place), return_inverse=True)[1]
    return columns


def _in_order(rows: Array, columns: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
    """Returns rows and columns ordered by client, then by split; nothing is copied where they are already."""
    keys = [columns[key] for key in ("split", "client") if key in columns]
    order = np.lexsort(keys) if keys else np.arange(len(rows))
    if (np.diff(order) > 0).all():
        return rows, columns
    return rows[order], {key: values[order] for key, values in columns.items()}


def _counts(rows: int, targets: Targets, clients: Array | None) -> dict[str, Any]:
    """Returns what the manifest says about the number of rows and clients, and about the reading of the labels."""
    names = [] if clients is None else np.unique(clients).tolist()
    return {
        "rows": rows,
        "clients": len(names),
        "task": targets.task,
        "class_names": list(targets.class_names),
    }
