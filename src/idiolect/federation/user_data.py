"""Turns a user's data of any form into a dataset: arrays, tensors, lists of clients, frames, torch datasets, paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

from idiolect.data import Dataset, from_arrays, from_clients, from_frame, read_path
from idiolect.errors import UserError

__all__ = ["to_dataset"]

COLUMNS = ("client_column", "label_column", "split_column", "split_by")  # of tables and of files
OfRow = Callable[[int], Any] | Sequence[Any]  # a value for each row, or a function from its number to it
ARRAYS = ("x", "y", "client", "split", "time", "group")


def to_dataset(
    data: Any,
    *,
    client_of: OfRow | None = None,
    split_of: OfRow | None = None,
    task: str | None = None,
    fill: str | float | None = None,
    vocabulary: int | None = None,
    name: str = "data",
    like: Mapping[str, Any] | None = None,
    **columns: Any,
) -> Dataset:
    """Returns data in any of the forms that users have as a dataset.

    Args:
        data: a path; a frame of pandas; a tuple ``(x, y)`` or ``(x, y, client)`` of arrays or tensors; a mapping of
            arrays named ``x``, ``y``, ``client``, ``split``, ``time`` and ``group``; a list of ``(x, y)``, or a mapping
            from names to them, one for each client; a torch ``Dataset`` of pairs; or a ``Dataset`` of this package.
        client_of, split_of: of a torch dataset, a function from a row's number to its client or split, or one for each.
        task, fill, vocabulary: see ``data.Dataset``; the task is inferred from the targets unless given.
        like: the manifest of a dataset whose classes, and encoding of columns, these data are to have.
        columns: ``client_column``, ``label_column``, ``split_column`` and ``split_by`` of a frame or a file.
    """
    if isinstance(data, Dataset):
        _refuse_options(
            "a Dataset",
            task=task,
            fill=fill,
            vocabulary=vocabulary,
            client_of=client_of,
            split_of=split_of,
            **columns,
        )
        return data
    common: dict[str, Any] = {"task": task, "fill": "none" if fill is None else fill}
    if isinstance(data, str | Path):
        _refuse_options("a path", client_of=client_of, split_of=split_of)
        return read_path(data, **common, **columns, vocabulary=vocabulary, like=like)
    if isinstance(data, pd.DataFrame):
        _refuse_options("a frame", client_of=client_of, split_of=split_of, vocabulary=vocabulary)
        return from_frame(data, **common, **columns, name=name, like=like)
    _refuse_options("arrays", **columns)
    rest: dict[str, Any] = {**common, "vocabulary": vocabulary, "name": name}
    rest["class_names"] = (like or {}).get("class_names") or None
    if isinstance(data, TorchDataset):
        x, y = _materialised(data)
        rows = len(y)
        return from_arrays(x, y, client=_each(client_of, rows), split=_each(split_of, rows), **rest)
    _refuse_options("arrays", client_of=client_of, split_of=split_of)
    if isinstance(data, tuple) and len(data) in (2, 3):
        return from_arrays(*map(_numpy, data[:2]), client=_numpy(data[2]) if len(data) == 3 else None, **rest)
    if isinstance(data, Mapping) and {"x", "y"} <= set(data) and not isinstance(data["y"], tuple | Mapping):
        if unknown := sorted(set(data) - set(ARRAYS)):
            raise UserError(f"data has no place for {unknown[0]!r}; its arrays are {', '.join(ARRAYS)}")
        arrays = {key: _numpy(value) for key, value in data.items()}
        return from_arrays(arrays.pop("x"), arrays.pop("y"), **arrays, **rest)
    if isinstance(data, Mapping | list):
        return from_clients(_numpy(data), **rest)
    raise UserError(
        f"data is {type(data).__name__}; give a path, a frame, (x, y), (x, y, client), a list of (x, y) by client, "
        "or a torch Dataset with client_of"
    )


def _refuse_options(form: str, **given: Any) -> None:
    """Refuses options that this form of data does not have."""
    for option, value in given.items():
        if value is not None:
            raise UserError(f"{option} does not apply to data given as {form}; leave it out")


def _materialised(data: TorchDataset[Any]) -> tuple[Any, Any]:
    """Returns the rows and targets of a torch dataset as arrays."""
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return _numpy(data.tensors[0]), _numpy(data.tensors[1])
    try:
        count = len(data)  # type: ignore[arg-type]  # a dataset without a length is refused here
    except TypeError:
        raise UserError(
            f"the torch dataset {type(data).__name__} has no length; give one of a known size"
        ) from None
    rows, targets = [], []
    for number in range(count):
        sample = data[number]
        if not isinstance(sample, tuple | list) or len(sample) != 2:
            raise UserError(
                f"row {number} of the torch dataset is {type(sample).__name__}; each must be a pair (x, y)"
            )
        rows.append(np.asarray(_numpy(sample[0])))
        targets.append(np.asarray(_numpy(sample[1])))
    shapes = {row.shape for row in rows}
    if len(shapes) > 1:
        odd = next(n for n, row in enumerate(rows) if row.shape != rows[0].shape)
        raise UserError(
            f"row {odd} of the torch dataset has the shape {list(rows[odd].shape)} and row 0 {list(rows[0].shape)}; "
            "all need one shape"
        )
    return (np.stack(rows), np.stack(targets)) if rows else (np.empty((0, 1)), np.empty(0))


def _each(of_row: OfRow | None, rows: int) -> Any:
    """Returns a value for every row, or None."""
    if of_row is None:
        return None
    found = np.asarray([_value_of(of_row, number) for number in range(rows)] if callable(of_row) else of_row)
    if found.shape != (rows,):
        raise UserError(
            f"client_of and split_of need one value for each of {rows} rows, not shape {list(found.shape)}"
        )
    return found


def _value_of(of_row: Callable[[int], Any], number: int) -> Any:
    try:
        return of_row(number)
    except Exception as error:
        raise UserError(
            f"the function that gives a row its client or split fails on row {number}: {type(error).__name__} {error}; "
            "it is given the row's number"
        ) from error


def _numpy(value: Any) -> Any:
    """Returns a value with every tensor in it as an array."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().to_dense()
        return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    if isinstance(value, Mapping):
        return {key: _numpy(each) for key, each in value.items()}
    if isinstance(value, list) and any(isinstance(each, torch.Tensor | tuple | Mapping) for each in value):
        return [_numpy(each) for each in value]
    return tuple(_numpy(each) for each in value) if isinstance(value, tuple) else value
