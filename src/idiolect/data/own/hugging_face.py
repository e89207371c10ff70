"""Datasets of the `datasets` library: saved on disk, which needs nothing but Arrow, or from the hub (extra `hf`).

    folder of save_to_disk: state.json names the Arrow files; dataset_dict.json names the splits, each a folder
    hf:NAME or hf:NAME:CONFIGURATION: downloaded by `datasets.load_dataset`

Columns of type Image are decoded, a ClassLabel stands for its name, and Sequence and Array are arrays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from idiolect.data.dataset import Dataset
from idiolect.data.own.column_roles import column_roles
from idiolect.data.own.file_formats import AGAIN
from idiolect.data.own.images import decode_alike
from idiolect.data.own.tables import from_frame
from idiolect.errors import UserError

__all__ = ["arrow_files", "from_hub", "from_saved", "is_saved"]


def is_saved(folder: Path) -> bool:
    """Returns whether a folder was written by `save_to_disk`."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def arrow_files(folder: Path) -> list[Path]:
    """Returns the Arrow files of a saved dataset, of all its splits."""
    return [path for files in _files_by_split(folder).values() for path in files]


def from_saved(folder: Path, *, name: str, options: Mapping[str, Any], manifest: dict[str, Any]) -> Dataset:
    """Returns a dataset that `save_to_disk` wrote.

    Args:
        options: those of `from_frame`.
    """
    tables = {
        split: pa.concat_tables([_arrow_table(path) for path in files])
        for split, files in _files_by_split(folder).items()
    }
    return _from_tables(tables, name, options, manifest)


def from_hub(
    address: str,
    *,
    options: Mapping[str, Any],
    manifest: dict[str, Any],
    load: Callable[..., Any] | None = None,
) -> Dataset:
    """Returns a dataset of the hub, `NAME` or `NAME:CONFIGURATION`.

    Args:
        load: what downloads it; `datasets.load_dataset` by default.
    """
    words = [word for word in address.split(":") if word]
    try:
        found = (load or _library_loader(address))(*words)
    except UserError:
        raise
    except Exception as problem:  # the network, the hub and the library may raise anything at all
        reason = str(problem).split("\n", 1)[0]
        raise UserError(
            f"hf:{address} cannot be loaded ({reason}); check its name and the network"
        ) from problem
    parts = found if isinstance(found, Mapping) else {"": found}
    tables = {str(split): part.with_format("arrow")[:] for split, part in parts.items()}
    return _from_tables(tables, address.replace("/", "-").replace(":", "-"), options, manifest)


def _library_loader(address: str) -> Callable[..., Any]:
    try:
        from datasets import load_dataset  # noqa: PLC0415
    except ImportError as problem:
        raise UserError(
            f"hf:{address} needs the extra hf; install it with: pip install 'idiolect[hf]'"
        ) from problem
    return load_dataset  # type: ignore[no-any-return]


def _files_by_split(folder: Path) -> dict[str, list[Path]]:
    """Returns the Arrow files of each split; of "" where there are no splits."""
    if (path := folder / "dataset_dict.json").is_file():
        splits = _names(path, _json(path).get("splits"))
        return {split: _files_by_split(folder / split)[""] for split in splits}
    path = folder / "state.json"
    files = _json(path).get("_data_files")
    named = (
        [one.get("filename") if isinstance(one, dict) else None for one in files]
        if isinstance(files, list)
        else []
    )
    return {"": [folder / name for name in _names(path, named)]}


def _names(path: Path, found: Any) -> list[str]:
    """Returns names of files or folders beside ``path``, at least one; no other place is looked at."""
    names = found if isinstance(found, list) else []
    if not names or any(
        not isinstance(name, str) or Path(name).name != name or "\0" in name for name in names
    ):
        raise UserError(f"{path} does not name the parts of a saved dataset; {AGAIN}")
    return names


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise UserError(f"cannot read {path} ({problem}); {AGAIN}") from problem
    if not isinstance(found, dict):
        raise UserError(f"{path} is not of a saved dataset; {AGAIN}")
    return found


def _arrow_table(path: Path) -> Any:
    try:
        with pa.memory_map(str(path)) as stream:
            table = pa.ipc.open_stream(stream).read_all()
            table.validate(full=True)  # a damaged table would end the process where it is used
            return table
    except (OSError, pa.ArrowException) as problem:
        first_line = str(problem).partition("\n")[0]
        raise UserError(f"{path} is no whole Arrow file ({first_line}); {AGAIN}") from problem


def _from_tables(
    tables: Mapping[str, Any], name: str, options: Mapping[str, Any], manifest: dict[str, Any]
) -> Dataset:
    """Joins the splits, one table each, and reads their columns as the library's features say."""
    features = _features(next(iter(tables.values())))
    plain = {split: _without_extensions(table) for split, table in tables.items()}
    table = pa.concat_tables(list(plain.values()), promote_options="permissive")
    frame = table.to_pandas(date_as_object=False)
    class_names: dict[str, list[str]] = {}
    for column, feature in features.items():
        if feature.get("_type") == "Image":
            frame[column] = list(_images(frame[column], f"{name}, column {column!r}"))
        elif feature.get("_type") == "ClassLabel":
            class_names[column] = [word.strip() for word in feature["names"]]
            names = np.array([*class_names[column], None], object)
            frame[column] = names[frame[column].fillna(-1).to_numpy(int)]
    split = np.repeat(list(plain), [len(part) for part in plain.values()]) if len(plain) > 1 else None
    chosen = {key: options[key] for key in ("client_column", "label_column", "split_column", "split_by")}
    roles = column_roles(list(frame.columns), name, **chosen, split_is_known=split is not None)
    classes = class_names.get(roles.labels[0]) if len(roles.labels) == 1 else None
    return from_frame(frame, name=name, split=split, class_names=classes, manifest=manifest, **options)


def _features(table: Any) -> dict[str, dict[str, Any]]:
    """Returns the library's description of each column."""
    stored = (table.schema.metadata or {}).get(b"huggingface")
    features = json.loads(stored)["info"]["features"] if stored else {}
    return {column: feature for column, feature in features.items() if isinstance(feature, dict)}


def _without_extensions(table: Any) -> Any:
    """Returns a table in which arrays are plain lists, whether or not the library is loaded."""
    columns = [
        pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
        if isinstance(column.type, pa.BaseExtensionType)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _images(values: Any, where: str) -> Any:
    """Returns the images of a column, which holds their bytes or where their files lie."""

    def contents() -> Any:
        for row, value in enumerate(values):
            held = value or {}
            try:
                raw = held.get("bytes") or Path(held["path"]).read_bytes()
            except (KeyError, TypeError, OSError) as problem:
                raise UserError(f"{where}, row {row}: the image is missing; remove the row") from problem
            yield f"{where}, row {row}", raw

    return decode_alike(contents(), len(values))
