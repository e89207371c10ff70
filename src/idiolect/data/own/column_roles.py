"""What each column of a user's table is for: label, client, split or feature; and labels by comparison."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from idiolect.data.dataset import Array
from idiolect.errors import UserError

__all__ = [
    "CLIENT_COLUMNS",
    "LABEL_COLUMNS",
    "ColumnRoles",
    "client_column_in",
    "client_column_of",
    "column_roles",
    "label_and_task_of",
    "label_values",
    "refuse_duplicates",
]

LABEL_COLUMNS = ("label", "target", "y", "class")
CLIENT_COLUMNS = ("client", "client_id", "user", "user_id", "site", "site_id", "subject", "subject_id")
COMPARISON = re.compile(r"(.+?)\s*(>=|<=|==|!=|>|<)\s*(.+)")
COMPARE = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "==": "!=", "!=": "=="}


class ColumnRoles(NamedTuple):
    """What the columns of a table are for; those that are named nowhere here are features.

    Args:
        labels: as given: the name of a column, or a comparison of one, such as `target>0`.
    """

    labels: tuple[str, ...]
    client: str | None = None
    split: str | None = None
    time: str | None = None
    group: str | None = None

    def features(self, names: Iterable[str]) -> list[str]:
        taken = {self.client, self.split, self.time, self.group, *self.label_columns(names)}
        return [name for name in names if name not in taken]

    def label_columns(self, names: Iterable[str]) -> list[str]:
        return [_compared(label, names)[0] for label in self.labels]


def column_roles(
    names: Sequence[str],
    where: str,
    client_column: str | None = None,
    label_column: str | Sequence[str] | None = None,
    split_column: str | None = None,
    split_by: str | None = None,
    client_is_known: bool = False,
    split_is_known: bool = False,
) -> ColumnRoles:
    """Returns what each column is for, by the options or else by its name."""
    given = label_column if isinstance(label_column, tuple | list) else [label_column]
    labels = tuple(str(one) for one in given if one is not None)
    if not labels:
        labels = _known(names, LABEL_COLUMNS)[:1]
        if not labels:
            raise UserError(
                f"{where} has no column {', '.join(LABEL_COLUMNS)}; name the label with label_column, one of "
                f"{_listed(names)}"
            )
    kind, _, by_column = (split_by or "").partition(":")
    if split_by is not None and (kind not in ("time", "group") or not by_column):
        raise UserError(f"{where}: split_by must be time:COLUMN or group:COLUMN, not {split_by!r}")
    label_columns = [_compared(label, names)[0] for label in labels]
    known_clients = [one for one in _known(names, CLIENT_COLUMNS) if one not in (*label_columns, by_column)]
    if client_column is None and len(known_clients) + client_is_known > 1:
        also = "its file name and " if client_is_known else ""
        raise UserError(
            f"{where}: {also}the columns {', '.join(known_clients)} could name the client of a row; say which with "
            "client_column, or rename them"
        )
    if client_column is None and not client_is_known:
        client_column = known_clients[0] if known_clients else None
    split_column = split_column or _known_split(
        names, where, (*label_columns, by_column, client_column), split_by, split_is_known
    )
    time, group = (by_column if kind == one and by_column else None for one in ("time", "group"))
    roles = ColumnRoles(labels, client_column, split_column, time, group)
    _check_roles(roles, names, where)
    return roles


def _known_split(
    names: Sequence[str], where: str, taken: Sequence[str | None], split_by: str | None, split_is_known: bool
) -> str | None:
    """Returns the column with the name split, if any; refuses it where the rows are split otherwise already."""
    found = next((one for one in _known(names, ("split",)) if one not in taken), None)
    if found is not None and (split_by is not None or split_is_known):
        other = f"split_by={split_by}" if split_by else "the place of its files"
        raise UserError(
            f"{where}: both its column {found!r} and {other} say how rows are split; remove or rename the column"
        )
    return found


def label_and_task_of(
    like: Mapping[str, Any] | None, label_column: str | Sequence[str] | None, task: str | None
) -> tuple[str | Sequence[str] | None, str | None]:
    """Returns label and task as given, or else as the dataset with the manifest `like` has them."""
    known = like or {}
    return label_column or known.get("columns", {}).get("labels"), task or known.get("task")


def client_column_of(like: Mapping[str, Any] | None) -> str | None:
    """Returns the column that names the clients of the dataset with the manifest `like`, if any."""
    known = like or {}
    found: str | None = known.get("columns", {}).get("client") or known.get("options", {}).get(
        "client_column"
    )
    return found


def client_column_in(like: Mapping[str, Any] | None, names: Sequence[str], where: str) -> str | None:
    """Returns the client column of the dataset with the manifest `like`; refuses names without it."""
    column = client_column_of(like)
    if column is not None and column not in names:
        raise UserError(
            f"{where} has no column {column!r}, which names the clients of the data that were trained on; add it, or "
            f"name another with client_column, one of {_listed(names)}"
        )
    return column


def label_values(
    columns: Mapping[str, Array], roles: ColumnRoles, where: str
) -> tuple[Array, tuple[str, ...] | None]:
    """Returns the labels as given or compared, and their names in order, where those are known."""
    found = [_label(label, columns, where) for label in roles.labels]
    if len(found) == 1:
        return found[0]
    for label, (values, classes) in zip(roles.labels, found, strict=True):
        if values.dtype.kind not in "biuf" and classes is None:
            raise UserError(
                f"{where}: the label {label!r} holds words, but several labels have to be numbers; give one label"
            )
    numbers = [
        np.where(pd.isna(values), np.nan, values == classes[1]) if classes else values
        for values, classes in found
    ]
    return np.stack(numbers, axis=1), roles.labels


def _check_roles(roles: ColumnRoles, names: Sequence[str], where: str) -> None:
    """Refuses a role that a missing column is to have, and a column with two roles."""
    labels = [("label_column", column) for column in roles.label_columns(names)]
    others = [
        ("client_column", roles.client),
        ("split_column", roles.split),
        ("split_by", roles.time or roles.group),
    ]
    used = [(option, column) for option, column in [*labels, *others] if column is not None]
    for option, column in used:
        if column not in names:
            raise UserError(
                f"{where} has no column {column!r}, which {option} names; it has {_listed(names)}"
            )
    columns = [column for _, column in used]
    twice = next((column for column in columns if columns.count(column) > 1), None)
    if twice is not None:
        raise UserError(
            f"{where}: the column {twice!r} is given two roles; give it one of label, client and split"
        )


def refuse_duplicates(names: Sequence[str], where: str) -> None:
    """Refuses a table with two columns of one name."""
    twice = (
        next((one for one in names if names.count(one) > 1), None) if len(set(names)) < len(names) else None
    )
    if twice is not None:
        raise UserError(
            f"{where} has the column {twice!r} more than once; give each column a name of its own"
        )


def _label(label: str, columns: Mapping[str, Array], where: str) -> tuple[Array, tuple[str, ...] | None]:
    column, sign, bound = _compared(label, columns)
    values = columns[column]
    if not sign:
        return values, None
    is_number = values.dtype.kind in "biuf"
    try:
        limit = float(bound) if is_number else bound
    except ValueError as problem:
        raise UserError(
            f"{where}: the label {label!r} compares numbers with {bound!r}; give a number"
        ) from problem
    if not is_number and sign not in ("==", "!="):
        raise UserError(f"{where}: the label {label!r} compares words; they can only be == or !=")
    names = f"{column}{OPPOSITE[sign]}{bound}", f"{column}{sign}{bound}"
    missing = pd.isna(values)
    found = np.where(COMPARE[sign](values, limit), names[1], names[0]).astype(object)
    found[missing] = None
    return found, names


def _compared(label: str, names: Iterable[str]) -> tuple[str, str, str]:
    """Returns column, sign and bound of a comparison; no sign where a column has this very name."""
    found = None if label in names else COMPARISON.fullmatch(label)
    return (found[1], found[2], found[3]) if found else (label, "", "")


def _known(names: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns with a known name, in the order of those, without regard to case."""
    by_name: dict[str, str] = {}
    for name in names:
        by_name.setdefault(name.lower(), name)
    return tuple(by_name[one] for one in known if one in by_name)


def _listed(names: Sequence[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
