"""Rows, labels, clients, splits and times of the user's own, brought to the types that `Dataset` holds.

Each function takes what NumPy can make an array of, and refuses what it cannot use by row and value.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from idiolect.data.dataset import CLASS_TASKS, Array
from idiolect.errors import UserError

__all__ = [
    "SPLIT_WORDS",
    "Inputs",
    "Place",
    "Targets",
    "array_of",
    "check_values",
    "read_names",
    "read_rows",
    "read_splits",
    "read_targets",
    "read_times",
    "source_columns",
]

Place = Callable[[int], str]  # how a refusal names row i
Inputs = tuple[tuple[str, tuple[int, ...]], ...]
SPLIT_WORDS = {
    "train": 0,
    "training": 0,
    "valid": 1,
    "validation": 1,
    "val": 1,
    "dev": 1,
    "test": 2,
    "testing": 2,
}
MANY_LABELS = (
    100  # more different words than this, with fewer than two rows of each, are not taken for classes
)
MANY_NUMBERS = 30  # as are more different numbers than this, with fewer than five rows of each


class Targets(NamedTuple):
    """The targets of a dataset, its number of outputs, and how they were understood."""

    y: Array
    outputs: int
    task: str
    class_names: tuple[str, ...] = ()


def array_of(values: Any, what: str) -> Array:
    """Returns values as an array of numbers, words or times; rows of different lengths are refused by number."""
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(len(values), object)
        array[:] = list(values)
    if (
        array.dtype == object
        and array.ndim == 1
        and len(array)
        and isinstance(array[0], list | tuple | np.ndarray)
    ):
        shapes = [_shape(row) for row in array]
        other = next((row for row, shape in enumerate(shapes) if shape != shapes[0]), None)
        if other is not None:
            raise UserError(
                f"{what}: row {other} has the shape {shapes[other]} but row 0 has {shapes[0]}; cut or pad the rows "
                "to one shape"
            )
        array = np.stack([np.asarray(row) for row in array])
    if array.ndim == 0:
        raise UserError(
            f"{what} is a single {type(values).__name__}; give an array with one entry for each row"
        )
    return array


def read_rows(x: Any, vocabulary: int | None, name: str) -> tuple[Array, Inputs]:
    """Returns rows as uint8, float32 or, with a vocabulary, int64, and the shapes of several inputs."""
    if not isinstance(x, Mapping):
        return _rows(array_of(x, f"{name}, x"), vocabulary, f"{name}, x"), ()
    if vocabulary is not None:
        raise UserError(f"{name}: tokens cannot be one of several inputs; give x as one array of tokens")
    parts = {str(key): array_of(values, f"{name}, input {key!r}") for key, values in x.items()}
    if not parts:
        raise UserError(f"{name}: x names no input; give at least one array")
    lengths = {key: len(values) for key, values in parts.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(
            f"{name}: its inputs have different numbers of rows ({lengths}); give one of each for every row"
        )
    rows = {key: _rows(values, None, f"{name}, input {key!r}") for key, values in parts.items()}
    flat = [values.reshape(len(values), -1).astype(np.float32, copy=False) for values in rows.values()]
    return np.concatenate(flat, axis=1), tuple((key, values.shape[1:]) for key, values in rows.items())


def source_columns(feature_names: Sequence[str], manifest: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Returns the column of the user's table that each feature comes from; a column of words is several features.

    >>> features = [{"name": "age", "kind": "number"}, {"name": "sex", "kind": "category", "values": ["f", "m"]}]
    >>> source_columns(("age", "sex=f", "sex=m"), {"columns": {"features": features}})
    ('age', 'sex', 'sex')
    """
    encoding = (manifest or {}).get("columns", {}).get("features", ())
    found = tuple(one["name"] for one in encoding for _ in one.get("values", (0,)))
    return found if len(found) == len(feature_names) else tuple(feature_names)


def check_values(rows: Array, fill: str, columns: tuple[str, ...], place: Place) -> None:
    """Refuses infinity, and missing values where nothing fills them, by row and column.

    Args:
        columns: the user's column of each feature; () where they have no names.
    """
    if rows.dtype != np.float32 or np.isfinite(rows).all():
        return
    infinite = np.isinf(rows)
    wrong = infinite if infinite.any() else np.isnan(rows)
    if fill != "none" and not infinite.any():
        return
    first = np.unravel_index(int(wrong.argmax()), rows.shape)
    named = len(columns) == rows.shape[1] and rows.ndim == 2
    column = f"column {columns[first[1]]!r}" if named else f"place {[int(i) for i in first[1:]]}"
    cells = wrong[:, np.unique(columns, return_index=True)[1]] if named else wrong
    count = int(cells.sum())
    others, them, rest = (
        (f", as are {count} values in all", "them", "those rows") if count > 1 else ("", "it", "the row")
    )
    if infinite.any():
        raise UserError(
            f"{place(int(first[0]))}: {column} is infinite, or beyond what float32 holds{others}; replace {them} or "
            f"remove {rest}"
        )
    raise UserError(
        f"{place(int(first[0]))}: {column} is missing (NaN){others}; fill {them} (fill=mean or --fill mean; zero or a "
        f"number do too) or remove {rest}"
    )


def read_targets(
    y: Any,
    task: str | None,
    class_names: Sequence[str] | None,
    vocabulary: int | None,
    name: str,
    place: Place,
) -> Targets:
    """Returns the targets by task, which is read from the labels where it is not given."""
    values = _labels(array_of(y, f"{name}, labels"), name, place)
    is_table = values.ndim == 2
    if task is None:
        whole = values.dtype.kind in "biuU" or bool((values == np.round(values)).all())
        if is_table:
            task = "multilabel" if whole and np.isin(values, (0, 1)).all() else "regression"
        else:
            task = "classification" if whole else "regression"
        if not is_table and task == "classification" and class_names is None:
            _refuse_many_labels(values, name)
    if task == "next_token":
        return _next_tokens(values, vocabulary, name)
    if task in CLASS_TASKS:
        if is_table:
            raise UserError(
                f"{name} has {values.shape[1]} columns of labels, but {task} takes one class for each row; give one "
                "column, or the task multilabel or regression"
            )
        return _classes(values, task, class_names, name, place)
    return _numbers(values, task, class_names, name, place)


def read_names(values: Any, what: str, name: str, place: Place) -> Array:
    """Returns names of clients or groups: int64 where all are whole numbers, also as words, and else strings."""
    array = array_of(values, f"{name}, {what}")
    if array.ndim != 1:
        raise UserError(f"{name}: {what} must be one name for each row, not an array {list(array.shape)}")
    missing = pd.isna(array) | (array == "" if array.dtype.kind in "UO" else False)
    if missing.any():
        raise UserError(f"{place(int(missing.argmax()))}: the {what} is missing; name it or remove the row")
    if array.dtype == object:
        _refuse_other_types(array, (str, int, np.integer), f"the {what}", "words or whole numbers", place)
    if array.dtype.kind == "f" and (array == np.round(array)).all():
        array = array.astype(np.int64)
    if array.dtype.kind not in "iubUO":
        raise UserError(
            f"{name}: {what} must be words or whole numbers, not {array.dtype}; name each {what} by one of them"
        )
    return whole_numbers_if_all(array)


def read_splits(values: Any, name: str, place: Place) -> Array:
    """Returns the place in `SPLITS` of each row, from words or from 0, 1 and 2."""
    names = read_names(values, "split", name, place)
    different, index = np.unique(names, return_inverse=True)
    codes = [
        SPLIT_WORDS.get(value.strip().lower(), -1)
        if isinstance(value, str)
        else value
        if value in (0, 1, 2)
        else -1
        for value in different.tolist()
    ]
    found = np.array(codes, np.int8)[index]
    if (found < 0).any():
        row = int((found < 0).argmax())
        raise UserError(
            f"{place(row)}: unknown split {names[row].item()!r}; use train, valid (validation, val, dev) and test, "
            "or 0, 1, 2"
        )
    return found


def read_times(values: Any, name: str, place: Place) -> Array:
    """Returns times as numbers that order the rows: nanoseconds since 1970 of dates."""
    array = array_of(values, f"{name}, time")
    if array.dtype == object:
        _refuse_other_types(array, (str, datetime.date), "the time", "numbers or dates", place)
    if array.dtype.kind in "UO":
        try:
            array = (
                pd.to_datetime(pd.Series(array), format="ISO8601", utc=True).dt.tz_localize(None).to_numpy()
            )
        except (ValueError, TypeError) as problem:
            wrong = pd.to_datetime(pd.Series(array), format="ISO8601", utc=True, errors="coerce").isna()
            row = int(wrong.to_numpy().argmax())
            raise UserError(
                f"{place(row)}: the time {str(array[row])!r} cannot be ordered; give numbers or dates as "
                "2024-01-31T12:00:00"
            ) from problem
    if array.ndim != 1 or array.dtype.kind not in "iufM":
        raise UserError(
            f"{name}: time must be one number or date for each row, not {array.dtype}{list(array.shape)}"
        )
    missing = pd.isna(array) | (np.isinf(array) if array.dtype.kind == "f" else False)
    if missing.any():
        raise UserError(
            f"{place(int(missing.argmax()))}: the time is missing or infinite; give every row a time"
        )
    if array.dtype.kind == "M":
        return array.astype("datetime64[ns]").astype(np.int64)
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


def whole_numbers_if_all(names: Array) -> Array:
    """Returns names as whole numbers where every one is written as such, and else as words of the least length.

    >>> whole_numbers_if_all(np.array(["10", "9"])).tolist(), whole_numbers_if_all(np.array(["10", "x"])).tolist()
    ([10, 9], ['10', 'x'])
    """
    if names.dtype.kind in "iu" and (names <= np.iinfo(np.int64).max).all():
        return names.astype(np.int64)
    different, index = np.unique(names.astype(str), return_inverse=True)
    words = different.tolist()
    if all(
        word.isascii() and word.isdecimal() and str(int(word)) == word and len(word) < 19 for word in words
    ):
        return different.astype(np.int64)[index]
    return np.array(words)[index]


def _rows(array: Array, vocabulary: int | None, what: str) -> Array:
    if vocabulary is not None:
        if array.ndim != 2 or array.dtype.kind not in "iu":
            raise UserError(
                f"{what} must, with a vocabulary, be whole numbers [N, L], not {array.dtype}{list(array.shape)}"
            )
        return array.astype(np.int64)
    if array.dtype.kind not in "biuf":
        kind = {"O": "Python objects", "U": "words", "S": "words", "c": "complex numbers", "M": "dates"}
        raise UserError(
            f"{what} holds {kind.get(array.dtype.kind, str(array.dtype))}; give numbers (a table with words goes "
            "through from_frame or a CSV file)"
        )
    array = array[:, None] if array.ndim == 1 else array
    if 0 in array.shape[1:]:
        raise UserError(
            f"{what} has rows of the shape {list(array.shape[1:])}, without a number; check the rows"
        )
    if array.dtype == np.uint8 and array.ndim > 2:
        return array
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _refuse_other_types(values: Array, types: tuple[type, ...], what: str, wanted: str, place: Place) -> None:
    """Refuses the first value that is of none of the types, unless it is missing."""
    for row, value in enumerate(values):
        if not isinstance(value, types) and not (np.isscalar(value) and pd.isna(value)) and value is not None:
            raise UserError(f"{place(row)}: {what} is a {type(value).__name__}; give {wanted}")


def _labels(values: Array, name: str, place: Place) -> Array:
    """Returns labels as numbers, booleans or words, without a missing one; a single column is [N]."""
    if not len(values):
        raise UserError(f"{name} has no labels; give one for each row")
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    missing = np.asarray(pd.isna(values) | (values == "" if values.dtype.kind in "UO" else False))
    if missing.any():
        row = int(missing.reshape(len(values), -1).any(axis=1).argmax())
        raise UserError(f"{place(row)}: the label is missing; label it or remove the row")
    if values.dtype == object:
        kinds = [type(value) for value in values.ravel()]
        other = next((row for row, kind in enumerate(kinds) if kind is not kinds[0]), None)
        if other is not None:
            raise UserError(
                f"{place(other)}: the label {values.ravel()[other]!r} is of another type than {values.ravel()[0]!r}; "
                "give labels of one type"
            )
        values = np.array(values.tolist())
    if (
        values.dtype.kind not in "biufU"
        or values.ndim not in (1, 2)
        or (values.ndim == 2 and values.dtype.kind == "U")
    ):
        raise UserError(
            f"{name}: labels must be words, booleans or numbers [N], or numbers [N, K], not "
            f"{values.dtype}{list(values.shape)}"
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row = int((~np.isfinite(values)).reshape(len(values), -1).any(axis=1).argmax())
        raise UserError(f"{place(row)}: the label is infinite; correct it or remove the row")
    return values


def _refuse_many_labels(values: Array, name: str) -> None:
    """Refuses labels that are read as classes though hardly any two rows share one."""
    different, rows = len(np.unique(values)), len(values)
    if values.dtype.kind == "U":
        if different > MANY_LABELS and rows < 2 * different:
            raise UserError(
                f"{name} has {different} different words as labels on {rows} rows, which are hardly classes; give "
                "task=classification if they are"
            )
    elif different > MANY_NUMBERS and rows < 5 * different:
        raise UserError(
            f"{name} has {different} different numbers as labels on {rows} rows, which are hardly classes; give "
            "task=regression, or task=classification if they are"
        )


def _classes(values: Array, task: str, class_names: Sequence[str] | None, name: str, place: Place) -> Targets:
    if values.dtype.kind == "f":
        no_class = (values != np.round(values)) | (np.abs(values) >= 2**53)
        if no_class.any():
            row = int(no_class.argmax())
            raise UserError(
                f"{place(row)}: the label {values[row]} is no class for {task}; give the task regression"
            )
        values = values.astype(np.int64)
    values = values if values.dtype.kind == "b" else whole_numbers_if_all(values)
    different, index = np.unique(values, return_inverse=True)
    found = [str(label) for label in different.tolist()]
    names = found if class_names is None else [str(label) for label in class_names]
    unknown = [label for label in found if label not in set(names)]
    if unknown:
        row = int((index == found.index(unknown[0])).argmax())
        raise UserError(f"{place(row)}: unknown label {unknown[0]!r}; the classes are {', '.join(names)}")
    if len(names) < 2 or (task == "binary" and len(names) != 2):
        wanted = "two" if task == "binary" else "at least two"
        raise UserError(
            f"{name}: {task} needs {wanted} classes, but the labels are {', '.join(names[:5])}; check the label"
        )
    number = {label: k for k, label in enumerate(names)}
    codes = np.array([number[label] for label in found], np.int64)
    return Targets(codes[index], len(names), task, tuple(names))


def _next_tokens(values: Array, vocabulary: int | None, name: str) -> Targets:
    if vocabulary is None or values.dtype.kind not in "iu" or values.ndim != 1:
        raise UserError(
            f"{name}: next_token needs a vocabulary, and one whole number for each row as its label"
        )
    return Targets(values.astype(np.int64), vocabulary, "next_token")


def _numbers(values: Array, task: str, class_names: Sequence[str] | None, name: str, place: Place) -> Targets:
    if values.dtype.kind == "U":
        raise UserError(
            f"{name}: {task} needs numbers as labels, not words such as {str(values.flat[0])!r}; check the label"
        )
    with np.errstate(over="ignore"):
        table = values.reshape(len(values), -1).astype(np.float32)
    if not np.isfinite(table).all():
        row = int((~np.isfinite(table)).any(axis=1).argmax())
        raise UserError(f"{place(row)}: the label is beyond what float32 holds; scale it or remove the row")
    if task == "multilabel" and not np.isin(table, (0, 1)).all():
        row = int((~np.isin(table, (0, 1))).any(axis=1).argmax())
        raise UserError(
            f"{place(row)}: multilabel takes labels of 0 and 1, not {values[row].tolist()}; correct the row"
        )
    return Targets(table, table.shape[1], task, tuple(str(label) for label in class_names or ()))


def _shape(row: Any) -> list[int]:
    """Returns the shape of a row; only its length where its own rows differ."""
    try:
        return list(np.shape(row))
    except ValueError:
        return [len(row)]
