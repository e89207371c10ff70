"""Tables of the user's own as a `Dataset`: what each column is for, and how features are encoded.

Columns of numbers and booleans are features in their order.  A column of a few words becomes one feature of 0 and 1
for each word, named `column=word`, in the order of the words.  Blank, `?` and `NA` are missing.  `manifest["columns"]`
records the encoding, with which `encode_frame` encodes further rows in the same way.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from idiolect.data.dataset import Array, Dataset
from idiolect.data.own_columns import Place
from idiolect.data.own_data import from_arrays
from idiolect.errors import UserError

__all__ = [
    "CLIENT_COLUMNS",
    "LABEL_COLUMNS",
    "MISSING",
    "ColumnRoles",
    "column_roles",
    "encode_frame",
    "from_frame",
    "label_and_task_of",
    "label_values",
    "refuse_duplicates",
]

LABEL_COLUMNS = ("label", "target", "y", "class")
CLIENT_COLUMNS = ("client", "client_id", "user", "user_id", "site", "site_id", "subject", "subject_id")
MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
MOST_WORDS = 20  # a column with more different words is no category
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


def from_frame(
    frame: Any,
    *,
    client_column: str | None = None,
    label_column: str | Sequence[str] | None = None,
    split_column: str | None = None,
    split_by: str | None = None,
    task: str | None = None,
    fill: str | float = "none",
    name: str = "data",
    client: Any = None,
    split: Any = None,
    class_names: Sequence[str] | None = None,
    like: Mapping[str, Any] | None = None,
    manifest: Mapping[str, Any] | None = None,
    place: Place | None = None,
) -> Dataset:
    """Returns a dataset of the rows of a `pandas.DataFrame`.

    Args:
        client_column: by default the one column of `CLIENT_COLUMNS` there is, if any.
        label_column: one column or several, or a comparison such as `target>0`, which makes two classes; by default the
            first of `LABEL_COLUMNS` there is.
        split_column: of train, valid and test; by default the column `split`, if there is one.
        split_by: `time:COLUMN` or `group:COLUMN`.
        client, split: one value for each row, in place of a column.
        class_names: all classes in their order, where the labels may not show them all.
        like: the manifest of a dataset whose label, task, classes and encoding these rows are to have.

    The other arguments are those of `from_arrays`.

    >>> columns = {"age": [30, 50, 60], "sex": ["f", "m", "f"], "target": [0, 2, 1], "site": ["b", "a", "a"]}
    >>> frame = pd.DataFrame(columns)
    >>> data = from_frame(frame, label_column="target>0")
    >>> data.feature_names, data.train_y.tolist(), data.class_names
    (('age', 'sex=f', 'sex=m'), [1, 1, 0], ('target<=0', 'target>0'))
    """
    label_column, task = label_and_task_of(like, label_column, task)
    frame = frame.rename(columns=str)
    names = [str(column) for column in frame.columns]
    refuse_duplicates(names, name)
    roles = column_roles(
        names,
        name,
        client_column,
        label_column,
        split_column,
        split_by,
        client is not None,
        split is not None,
    )
    if not len(frame):
        raise UserError(f"{name} has no rows; give at least one")
    labels, classes = label_values(
        {column: _plain(frame[column]) for column in roles.label_columns(names)}, roles, name
    )
    plain = {column: _plain(frame[column]) for column in roles.features(names)}
    if not plain:
        raise UserError(f"{name} has no column besides {', '.join(names)} to learn from; add one")
    if like is None:
        encoding = [_encoding(column, values, name) for column, values in plain.items()]
    else:
        encoding, classes = _features_of(like), like.get("class_names") or None
    x, features = _encoded(plain, encoding, name, place or (lambda row: f"{name}, row {row}"))
    described = {**roles._asdict(), "labels": list(roles.labels), "features": encoding}
    return from_arrays(
        x,
        labels,
        client=_values(frame, roles.client) if client is None else client,
        split=_values(frame, roles.split) if split is None else split,
        time=_values(frame, roles.time, names=False),
        group=_values(frame, roles.group),
        task=task,
        fill=fill,
        name=name,
        feature_names=features,
        class_names=class_names or classes,
        manifest={"source": "frame", **(manifest or {}), "columns": described},
        place=place,
    )


def encode_frame(frame: Any, manifest: Mapping[str, Any]) -> Any:
    """Returns the rows of a table as the dataset with this manifest has them; missing values are NaN.

    Args:
        manifest: of a dataset made by `from_frame` or `read_path`.  Columns that are no features are not looked at.

    Raises:
        UserError: a column is missing, or holds a word that the dataset does not know.
    """
    encoding = _features_of(manifest)
    frame = frame.rename(columns=str)
    absent = [one["name"] for one in encoding if one["name"] not in frame.columns]
    if absent:
        raise UserError(
            f"the table has no column {absent[0]!r} ({len(absent)} are absent); the dataset has it as a feature"
        )
    plain = {one["name"]: _plain(frame[one["name"]]) for one in encoding}
    x, _ = _encoded(plain, encoding, "the table", lambda row: f"the table, row {row}")
    return x


def label_and_task_of(
    like: Mapping[str, Any] | None, label_column: str | Sequence[str] | None, task: str | None
) -> tuple[str | Sequence[str] | None, str | None]:
    """Returns label and task as given, or else as the dataset with the manifest `like` has them."""
    known = like or {}
    return label_column or known.get("columns", {}).get("labels"), task or known.get("task")


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
    if split_column is None and not split_is_known and split_by is None:
        split_column = next(iter(_known(names, ("split",))), None)
    time, group = (by_column if kind == one and by_column else None for one in ("time", "group"))
    roles = ColumnRoles(labels, client_column, split_column, time, group)
    wanted: dict[str, list[str | None]] = {
        "label_column": [*label_columns],
        "client_column": [client_column],
        "split_column": [split_column],
    }
    for option, columns in {**wanted, "split_by": [by_column or None]}.items():
        for column in columns:
            if column is not None and column not in names:
                raise UserError(
                    f"{where} has no column {column!r}, which {option} names; it has {_listed(names)}"
                )
    used = [*label_columns, *(one for one in roles[1:] if one is not None)]
    twice = next((one for one in used if used.count(one) > 1), None)
    if twice is not None:
        raise UserError(
            f"{where}: the column {twice!r} is given two roles; give it one of label, client and split"
        )
    return roles


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


def _features_of(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns how the features of a dataset are encoded."""
    if "columns" not in manifest:
        raise UserError(
            "the dataset is no table, so that no columns are known; give these rows as arrays too"
        )
    features: list[dict[str, Any]] = manifest["columns"]["features"]
    return features


def _compared(label: str, names: Iterable[str]) -> tuple[str, str, str]:
    """Returns column, sign and bound of a comparison; no sign where a column has this very name."""
    found = None if label in names else COMPARISON.fullmatch(label)
    return (found[1], found[2], found[3]) if found else (label, "", "")


def _plain(column: Any, names: bool = False) -> Array:
    """Returns the values of a column: numbers with NaN, booleans, dates, words with None, or objects such as lists.

    Args:
        names: words stay words, so that 007 and 7 are different clients.
    """
    kinds = pd.api.types
    if kinds.is_bool_dtype(column.dtype) and not column.isna().any():
        return np.asarray(column, bool)
    if kinds.is_numeric_dtype(column.dtype):
        missing = column.isna().any()
        return np.asarray(column.to_numpy(np.float64, na_value=np.nan) if missing else column)
    if kinds.is_datetime64_any_dtype(column.dtype):
        return np.asarray(column.dt.tz_localize(None) if column.dt.tz is None else column.dt.tz_convert(None))
    if any(isinstance(value, list | tuple | np.ndarray | Mapping | bytes) for value in column.iloc[:100]):
        return np.asarray(column, object)
    try:
        codes, different = pd.factorize(column.astype(object))
    except TypeError:  # values such as sets have no hash
        return np.asarray(column, object)
    words = [value.strip() if isinstance(value, str) else value for value in different]
    known = [None if isinstance(word, str) and word in MISSING else word for word in words]
    if names:
        return _taken([*known, None], codes)
    try:
        numbers = np.asarray(pd.to_numeric(pd.Series([*known, None], dtype=object)))[np.asarray(codes)]
        return numbers if np.isnan(numbers).any() else _whole_if_all(numbers)
    except (ValueError, TypeError):
        return _taken([*(None if word is None else str(word) for word in known), None], codes)


def _taken(words: Sequence[Any], codes: Array) -> Array:
    """Returns the word of each code; code -1 is the last word."""
    found: Array = np.array(words, object)[np.asarray(codes)]
    return found


def _whole_if_all(numbers: Array) -> Array:
    is_whole = (numbers == np.round(numbers)) & (np.abs(numbers) < 2**53)
    return numbers.astype(np.int64) if is_whole.all() else numbers


def _values(frame: Any, column: str | None, names: bool = True) -> Array | None:
    return None if column is None else _plain(frame[column], names)


def _encoding(column: str, values: Array, where: str) -> dict[str, Any]:
    """Returns how a feature is encoded, as plain values."""
    if values.dtype.kind in "biuf":
        return {"name": column, "kind": "number"}
    first = next((value for value in values if value is not None), None)
    if values.dtype.kind == "O" and isinstance(first, list | tuple | np.ndarray):
        return {"name": column, "kind": "array", "shape": list(_stacked(first).shape)}
    if values.dtype.kind != "O" or not isinstance(first, str):
        kind = "dates" if values.dtype.kind == "M" else type(first).__name__
        raise UserError(
            f"{where}: column {column!r} holds {kind}, which are no features; remove it, turn it into numbers, or "
            f"order the rows by it with split_by=time:{column}"
        )
    words = sorted(word for word in pd.unique(values) if word is not None)
    if len(words) > MOST_WORDS:
        raise UserError(
            f"{where}: column {column!r} holds {len(words)} different words, such as {words[0]!r}, too many to be "
            "categories; remove it, turn it into numbers, or name it as client_column, label_column or in split_by"
        )
    return {"name": column, "kind": "category", "values": words}


def _encoded(
    plain: Mapping[str, Array], encoding: Sequence[Mapping[str, Any]], where: str, place: Place
) -> tuple[Any, list[str]]:
    """Returns rows [N, F] and the names of the F features; columns of arrays are inputs of their own."""
    arrays = {
        one["name"]: _array_column(plain[one["name"]], one, place)
        for one in encoding
        if one["kind"] == "array"
    }
    flat = [one for one in encoding if one["kind"] != "array"]
    names = [
        feature
        for one in flat
        for feature in ([f"{one['name']}={v}" for v in one["values"]] if "values" in one else [one["name"]])
    ]
    rows = len(next(iter(plain.values())))
    table, at = np.empty((rows, len(names)), np.float32), 0
    for one in flat:
        values, width = plain[one["name"]], len(one.get("values", (0,)))
        if "values" in one:
            table[:, at : at + width] = _categories(values, one, place)
        else:
            _refuse_words(values, one["name"], place)
            with np.errstate(over="ignore"):
                table[:, at] = values
        at += width
    if not arrays:
        return table, names
    if len(arrays) == 1 and not flat:
        return next(iter(arrays.values())), []
    return arrays | ({"columns": table} if flat else {}), []


def _refuse_words(values: Array, column: str, place: Place) -> None:
    if values.dtype.kind not in "biuf":
        row = next((i for i, value in enumerate(values) if isinstance(value, str)), 0)
        raise UserError(f"{place(row)}: column {column!r} holds {values[row]!r}; it has to be a number")


def _categories(values: Array, one: Mapping[str, Any], place: Place) -> Array:
    """Returns a column of 0 and 1 for each word; NaN in all of them where the word is missing."""
    codes, different = pd.factorize(values)
    words = [str(value) for value in different]
    index = {word: k for k, word in enumerate(one["values"])}
    found = np.array([*(index.get(word, -2) for word in words), -1])[codes]
    if (found == -2).any():
        row = int((found == -2).argmax())
        raise UserError(
            f"{place(row)}: column {one['name']!r} holds {words[codes[row]]!r}, which is none of "
            f"{', '.join(one['values'])}; correct it"
        )
    encoded: Array = (found[:, None] == np.arange(len(one["values"]))).astype(np.float32)
    encoded[found == -1] = np.nan
    return encoded


def _array_column(values: Array, one: Mapping[str, Any], place: Place) -> Array:
    """Returns a column of lists as one array [N, ...]."""
    stacked = [np.empty(0, object) if value is None else _stacked(value) for value in values]
    for row, value in enumerate(stacked):
        if list(value.shape) != one["shape"]:
            found = "nothing" if values[row] is None else f"the shape {list(value.shape)}"
            raise UserError(
                f"{place(row)}: column {one['name']!r} has {found} instead of the shape {one['shape']}; cut or pad "
                "the rows to one shape"
            )
    return np.stack(stacked)


def _stacked(value: Any) -> Array:
    """Returns nested lists as one array; objects where their lengths differ."""
    try:
        array = np.asarray(value)
        return np.stack([_stacked(part) for part in array]) if array.dtype == object and array.ndim else array
    except ValueError:
        return np.empty((len(value), 0), object)


def _known(names: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns with a known name, in the order of those, without regard to case."""
    by_name: dict[str, str] = {}
    for name in names:
        by_name.setdefault(name.lower(), name)
    return tuple(by_name[one] for one in known if one in by_name)


def _listed(names: Sequence[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
