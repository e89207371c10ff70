"""Tables of the user's own as a `Dataset`: how features are encoded.

Columns of numbers and booleans are features in their order.  A column of a few words becomes one feature of 0 and 1
for each word, named `column=word`, in the order of the words.  Blank, `?` and `NA` are missing.  `manifest["columns"]`
records the encoding, with which `encode_frame` encodes further rows in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from idiolect.data.dataset import Array, Dataset
from idiolect.data.own.arrays import from_arrays
from idiolect.data.own.column_roles import (
    client_column_in,
    column_roles,
    label_and_task_of,
    label_values,
    refuse_duplicates,
)
from idiolect.data.own.columns import Place
from idiolect.errors import UserError

__all__ = ["MISSING", "encode_frame", "from_frame"]

MISSING = ("", "?", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
MOST_WORDS = 20  # a column with more different words is no category


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
        client_column: by default the one column of `column_roles.CLIENT_COLUMNS` there is, if any.
        label_column: one column or several, or a comparison such as `target>0`, which makes two classes; by default the
            first of `LABEL_COLUMNS` there is.
        split_column: of train, valid and test; by default the column `split`, if there is one.
        split_by: `time:COLUMN` or `group:COLUMN`.
        client, split: one value for each row, in place of a column.
        class_names: all classes in their order, where the labels may not show them all.
        like: the manifest of a dataset whose label, clients' column, task, classes and encoding these rows are to have.

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
    if client is None and client_column is None:
        client_column = client_column_in(like, names, name)
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
        {column: _plain(frame[column], class_names is not None) for column in roles.label_columns(names)},
        roles,
        name,
    )
    plain = {column: _plain(frame[column]) for column in roles.features(names)}
    place_of = place or (lambda row: f"{name}, row {row}")
    if not plain:
        raise UserError(f"{name} has no column besides {', '.join(names)} to learn from; add one")
    if like is None:
        encoding = [_encoding(column, values, name, place_of) for column, values in plain.items()]
    else:
        encoding, classes = _features_of(like), like.get("class_names") or None
        _refuse_absent(plain, encoding, name)
    x, features = _encoded(plain, encoding, name, place_of)
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
    _refuse_absent(frame.columns, encoding, "the table")
    plain = {one["name"]: _plain(frame[one["name"]]) for one in encoding}
    x, _ = _encoded(plain, encoding, "the table", lambda row: f"the table, row {row}")
    return x


def _refuse_absent(columns: Iterable[str], encoding: Sequence[Mapping[str, Any]], where: str) -> None:
    """Refuses a table without a column that the dataset has as a feature."""
    there = set(columns)
    absent = [one["name"] for one in encoding if one["name"] not in there]
    if absent:
        raise UserError(
            f"{where} has no column {absent[0]!r} ({len(absent)} of {len(encoding)} are absent); the dataset has it "
            "as a feature"
        )


def _features_of(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns how the features of a dataset are encoded."""
    if "columns" not in manifest:
        raise UserError(
            "the dataset is no table, so that no columns are known; give these rows as arrays too"
        )
    features: list[dict[str, Any]] = manifest["columns"]["features"]
    return features


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


def _encoding(column: str, values: Array, where: str, place: Place) -> dict[str, Any]:
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
        _refuse_misspelt_numbers(column, values, place)
        raise UserError(
            f"{where}: column {column!r} holds {len(words)} different words, such as {words[0]!r}, too many to be "
            "categories; remove it, turn it into numbers, or name it as client_column, label_column or in split_by"
        )
    return {"name": column, "kind": "category", "values": words}


def _refuse_misspelt_numbers(column: str, values: Array, place: Place) -> None:
    """Refuses a column of words most of which are numbers, also with a decimal comma, by the first that is none."""
    given = pd.Series(values).dropna().astype(str)
    is_number = pd.to_numeric(given, errors="coerce").notna()
    with_point = given.str.replace(",", ".", n=1, regex=False)
    has_comma = ~is_number & pd.to_numeric(with_point, errors="coerce").notna()
    wrong = ~(is_number | has_comma)
    if not 2 * int(wrong.sum()) < len(given):
        return
    count = int((~is_number).sum())
    row = int((has_comma if has_comma.any() else wrong).idxmax())
    share = (
        f"the only value of {len(given)} that is"
        if count == 1
        else f"one of {count} in {len(given)} values that are"
    )
    first = f"{given[row]!r}, {share} no number"
    if has_comma.any():
        raise UserError(
            f"{place(row)}: column {column!r} holds {first}; write decimal commas as points, as in "
            f"{with_point[row]}, and thousands without a separator"
        )
    raise UserError(
        f"{place(row)}: column {column!r} holds {first}; correct it, or leave it empty where the "
        "value is missing"
    )


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
