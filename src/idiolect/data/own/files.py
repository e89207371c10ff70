"""Files and folders of the user's own as a `Dataset`.

    one file                 .npz (x, y, client, ...), .parquet, .csv, .tsv or .data with a client column
    a folder of such files   one for each client, or for each client and split: client/train.csv or train/client.csv
    a folder of images       client/class/image.png, with or without train, valid and test above or below the client
    Hugging Face             a dataset saved on disk, or hf:NAME from the hub

A file's name without what all names share is its client: processed.cleveland.data and processed.va.data are those of
cleveland and va.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from idiolect.data.dataset import Array, Dataset
from idiolect.data.own.arrays import from_arrays, refuse_clients_without_rows
from idiolect.data.own.column_roles import (
    client_column_in,
    client_column_of,
    column_roles,
    label_and_task_of,
    label_values,
)
from idiolect.data.own.file_formats import (
    AGAIN,
    ENDINGS,
    FORMS,
    kind_of,
    places_in,
    read_archive,
    read_table,
)
from idiolect.data.own.hugging_face import arrow_files, from_hub, from_saved, is_saved
from idiolect.data.own.images import read_image_folder
from idiolect.data.own.tables import from_frame
from idiolect.errors import UserError

__all__ = ["read_path"]


class _File(NamedTuple):
    """A file, and what its place in a folder says about its rows."""

    path: Path
    parts: tuple[str, ...] = ()
    split: str | None = None


def read_path(
    path: str | Path,
    *,
    client_column: str | None = None,
    label_column: str | Sequence[str] | None = None,
    split_column: str | None = None,
    split_by: str | None = None,
    task: str | None = None,
    fill: str | float = "none",
    vocabulary: int | None = None,
    like: Mapping[str, Any] | None = None,
) -> Dataset:
    """Returns the dataset in a file or folder of the user's own.

    Args:
        path: a file or folder as listed above.
        vocabulary: number of different tokens, where x of an .npz file holds tokens.

    The other arguments are those of `from_frame`; in an .npz file, columns are arrays.
    """
    label_column, task = label_and_task_of(like, label_column, task)
    options: dict[str, Any] = {
        "client_column": client_column,
        "label_column": label_column,
        "split_column": split_column,
    }
    options |= {"split_by": split_by, "task": task, "fill": fill, "like": like}
    given = {key: value for key, value in options.items() if value is not None and key != "like"}
    manifest: dict[str, Any] = {"source": str(path), "options": given}
    if str(path).startswith("hf:"):
        return from_hub(str(path).removeprefix("hf:"), options=options, manifest=manifest)
    folder = Path(path)
    if not folder.exists():
        raise UserError(f"there is no file or folder {path}; {FORMS}")
    name = folder.resolve().stem
    if folder.is_dir() and is_saved(folder):
        manifest["sha256"] = {str(file): _sha256(file) for file in arrow_files(folder)}
        return from_saved(folder, name=name, options=options, manifest=manifest)
    paths = _paths_in(folder) if folder.is_dir() else [folder]
    kinds = sorted({kind_of(file) for file in paths})
    if len(kinds) > 1:
        raise UserError(f"{path} holds files of several kinds ({', '.join(kinds)}); keep those of one kind")
    if kinds == ["images"]:
        return _from_images(folder, paths, name, options, manifest)
    files = _clients_of(folder, paths) if folder.is_dir() else [_File(folder)]
    manifest["sha256"] = {str(file): _sha256(file) for file in paths}
    if kinds == ["npz"]:
        return _from_archives(files, name, options, vocabulary, manifest)
    if vocabulary is not None:
        raise UserError(f"{path} is no .npz file, so that it cannot hold tokens; leave out the vocabulary")
    return _from_tables(files, name, options, manifest)


def _from_images(
    folder: Path, paths: list[Path], name: str, options: dict[str, Any], manifest: dict[str, Any]
) -> Dataset:
    if not folder.is_dir():
        raise UserError(f"{folder} is a single image; give a folder with images in client/class")
    for key in ("client_column", "label_column", "split_column", "split_by"):
        if options[key] is not None:
            raise UserError(f"{folder} holds images, which have no columns; leave out {key}")
    classes = (options["like"] or {}).get("class_names") or None
    return read_image_folder(
        folder, paths, name=name, task=options["task"], class_names=classes, manifest=manifest
    )


def _from_tables(files: list[_File], name: str, options: dict[str, Any], manifest: dict[str, Any]) -> Dataset:
    """Reads tables with the same columns and joins them."""
    client = options["client_column"] or client_column_of(options["like"])
    words = [one for one in (client, options["split_column"]) if one is not None]
    tables = [read_table(file.path, words) for file in files]
    frame = _concatenated([file.path for file in files], [table for table, _ in tables])
    starts = np.cumsum([0, *(len(table) for table, _ in tables)])

    def place(row: int) -> str:
        which = int(np.searchsorted(starts, row, side="right")) - 1
        first_line = tables[which][1]
        kind = "line" if first_line else "row"
        return f"{files[which].path}, {kind} {row - int(starts[which]) + first_line}"

    return from_frame(
        frame.to_pandas(date_as_object=False),
        name=name,
        place=place,
        manifest=manifest,
        **options | _of_files(files, np.diff(starts), options),
    )


def _from_archives(
    files: list[_File], name: str, options: dict[str, Any], vocabulary: int | None, manifest: dict[str, Any]
) -> Dataset:
    """Reads .npz files with the same arrays and joins them."""
    archives = [read_archive(file.path) for file in files]
    for file, arrays in zip(files, archives, strict=True):
        shapes = {key: values.shape[1:] for key, values in arrays.items()}
        first = {key: values.shape[1:] for key, values in archives[0].items()}
        if shapes != first:
            raise UserError(
                f"{file.path} holds {_shown(shapes)} but {files[0].path} {_shown(first)}; give all files the same"
            )
    arrays = {key: np.concatenate([one[key] for one in archives]) for key in archives[0]}
    sizes = np.array([len(one["x"]) for one in archives])
    starts = np.cumsum([0, *sizes])

    def place(row: int) -> str:
        which = int(np.searchsorted(starts, row, side="right")) - 1
        return f"{files[which].path}, row {row - int(starts[which])}"

    x, known = arrays.pop("x"), _of_files(files, sizes, options)
    like = options["like"]
    client = options["client_column"]
    if client is None and "client" not in known:
        client = client_column_in(like, list(arrays), name)
    roles = column_roles(
        list(arrays),
        name,
        client,
        options["label_column"],
        options["split_column"],
        options["split_by"] or next((f"{key}:{key}" for key in ("time", "group") if key in arrays), None),
        "client" in known,
        "split" in known,
    )
    y, classes = label_values({key: arrays[key] for key in roles.label_columns(arrays)}, roles, name)
    return from_arrays(
        x,
        y,
        client=known.get("client", arrays.get(roles.client or "")),
        split=known.get("split", arrays.get(roles.split or "")),
        time=arrays.get(roles.time or ""),
        group=arrays.get(roles.group or ""),
        task=options["task"],
        fill=options["fill"],
        vocabulary=vocabulary,
        name=name,
        class_names=(like.get("class_names") or None) if like else classes,
        manifest=manifest,
        place=place,
    )


def _concatenated(paths: list[Path], tables: list[Any]) -> Any:
    """Returns tables one below the other; one with other columns than those before it is refused by its file."""
    schema = tables[0].schema
    for path, table in zip(paths, tables, strict=True):
        if table.column_names != schema.names:
            other = sorted(set(table.column_names) ^ set(schema.names))
            raise UserError(
                f"{path} has other columns than {paths[0]} ({', '.join(other) or 'in another order'}); give all "
                "files the same columns in one order"
            )
        try:
            schema = pa.unify_schemas([schema, table.schema], promote_options="permissive")
        except pa.ArrowException as problem:
            raise UserError(
                f"{path} has columns of other types than the files before it ({problem}); give each column one type"
            ) from problem
    return pa.concat_tables(tables, promote_options="permissive")


def _of_files(files: list[_File], sizes: Array, options: dict[str, Any]) -> dict[str, Array]:
    """Returns client and split of each row, where the files name them and no option says otherwise."""
    known = {}
    if files[0].parts and options["client_column"] is None:
        clients = ["/".join(file.parts) for file in files]
        refuse_clients_without_rows(str(files[0].path.parent), clients, sizes.tolist())
        known["client"] = np.repeat(clients, sizes)
    if files[0].split is not None:
        if options["split_column"] or options["split_by"]:
            raise UserError(
                f"{files[0].path}: its place already says its split; leave out split_column and split_by"
            )
        known["split"] = np.repeat([file.split for file in files], sizes)
    return known


def _paths_in(folder: Path) -> list[Path]:
    """Returns the files of a folder that can be read, in the order of their names."""
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in ENDINGS and path.is_file() and not path.name.startswith((".", "_"))
    ]
    if not found:
        raise UserError(f"{folder} holds no file that can be read; {FORMS}")
    return found


def _clients_of(folder: Path, paths: list[Path]) -> list[_File]:
    """Returns each file with the client and the split that its place in a folder names."""
    places, splits = places_in(folder, [path.with_suffix("") for path in paths])
    clients = _without_common([[word for part in place for word in part.split(".")] for place in places])
    files = [
        _File(path, tuple(client), splits[i] if splits else None)
        for i, (path, client) in enumerate(zip(paths, clients, strict=True))
    ]
    seen: dict[Any, Path] = {}
    for file in files:
        other = seen.setdefault((file.parts, file.split), file.path)
        if other != file.path:
            raise UserError(
                f"{other} and {file.path} would both be of client {'/'.join(file.parts)!r}; rename one of them"
            )
    return files


def _without_common(names: list[list[str]]) -> list[list[str]]:
    """Returns names without the first and last words that all of them share, of which at least one word stays.

    >>> _without_common([["processed", "va", "data"], ["processed", "cleveland", "data"]])
    [['va'], ['cleveland']]
    """
    different = {tuple(name) for name in names}
    if len(different) > 1:
        while min(map(len, names)) > 1 and len({name[0] for name in names}) == 1:
            names = [name[1:] for name in names]
        while min(map(len, names)) > 1 and len({name[-1] for name in names}) == 1:
            names = [name[:-1] for name in names]
    return names


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as problem:
        raise UserError(f"cannot read {path} ({problem.strerror or problem}); {AGAIN}") from problem


def _shown(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{key} {list(shape)}" for key, shape in shapes.items())
