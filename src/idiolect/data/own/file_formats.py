"""Reads one file of the user's own: the arrays of an .npz file, or the columns of a Parquet or text file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from idiolect.data.dataset import Array
from idiolect.data.image_files import read_file
from idiolect.data.own.column_roles import CLIENT_COLUMNS, refuse_duplicates
from idiolect.data.own.columns import SPLIT_WORDS
from idiolect.data.own.tables import MISSING
from idiolect.errors import UserError

__all__ = ["AGAIN", "ENDINGS", "FORMS", "kind_of", "places_in", "read_archive", "read_arrays", "read_table"]

ENDINGS = {
    **dict.fromkeys((".csv", ".tsv", ".data"), "text"),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"), "images"),
    ".parquet": "parquet",
    ".npz": "npz",
}
FORMS = "give a .npz, .parquet, .csv, .tsv or .data file, or a folder of such files or of images"
ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # how an .npz file begins; the second, one without arrays
AGAIN = "check that it is whole and that you may read it, or write it again"


def kind_of(path: Path) -> str:
    """Returns what a file is by its ending, or else by its first bytes: text, images, parquet or npz."""
    if path.suffix.lower() in ENDINGS:
        return ENDINGS[path.suffix.lower()]
    found = {b"PAR1": "parquet", b"PK\x03\x04": "npz"}.get(read_file(path, AGAIN)[:4])
    if found is None:
        raise UserError(f"{path} is of a kind that cannot be read; {FORMS}")
    return found


def places_in(folder: Path, paths: Sequence[Path]) -> tuple[list[list[str]], list[str] | None]:
    """Returns the names on the way from a folder to each path, without train, valid and test, and those apart."""
    names = [list(path.relative_to(folder).parts) for path in paths]
    splits = [[part for part in place if part.lower() in SPLIT_WORDS] for place in names]
    for path, words in zip(paths, splits, strict=True):
        if len(words) > 1 or len(words) != len(splits[0]):
            raise UserError(
                f"{path}: expected one of train, valid and test on the way to each file, or to none; move the file"
            )
    places = [[part for part in place if part.lower() not in SPLIT_WORDS] for place in names]
    return places, [words[0] for words in splits] if splits[0] else None


def read_arrays(path: Path) -> dict[str, Array]:
    """Returns the arrays of an .npz file as they are."""
    raw = read_file(path, AGAIN)
    if not raw.startswith(ZIP):  # NumPy would take it for pickled objects
        raise UserError(
            f"{path} is no .npz file; write it with numpy.savez, or give it the ending of what it is"
        )
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except Exception as problem:  # a broken archive may raise anything at all
        if "allow_pickle" in str(problem) or "Object arrays" in str(problem):
            raise UserError(
                f"{path} holds Python objects, which are not loaded as they could run code; save arrays of numbers "
                "or words"
            ) from problem
        raise UserError(f"{path} is no whole .npz file ({problem}); {AGAIN}") from problem


def read_archive(path: Path) -> dict[str, Array]:
    """Returns the arrays of an .npz file; train_x, test_x and so on become x, y and split."""
    arrays = _split_parts(path, read_arrays(path))
    if "x" not in arrays:
        raise UserError(f"{path} has no array x; it has {', '.join(arrays) or 'none'}: save x, y and client")
    for key, values in arrays.items():
        if values.ndim == 0 or len(values) != len(arrays["x"]):
            raise UserError(
                f"{path}: {key} is an array {list(values.shape)} but x has {len(np.atleast_1d(arrays['x']))} rows; "
                "give one entry for each row"
            )
    return arrays


def _split_parts(path: Path, arrays: dict[str, Array]) -> dict[str, Array]:
    """Returns arrays such as train_x and test_x (or x_train and x_test) as x with its split."""
    found: dict[str, dict[str, Array]] = {}
    others = []
    for name, values in arrays.items():
        (first, _, end), (start, _, last) = name.partition("_"), name.rpartition("_")
        split, key = (first, end) if first.lower() in SPLIT_WORDS else (last, start)
        if key and split.lower() in SPLIT_WORDS:
            found.setdefault(split, {})[key.lower()] = values
        else:
            others.append(name)
    if not found:
        return {("x" if name == "X" else name): values for name, values in arrays.items()}
    if others:
        raise UserError(
            f"{path}: the array {others[0]} is of no split, but others are of {' and '.join(found)}; name it as those "
            "are, such as train_x, or leave it out"
        )
    keys = set(next(iter(found.values())))
    for split, part in found.items():
        if "x" not in part or set(part) != keys:
            raise UserError(
                f"{path}: {split} has the arrays {', '.join(sorted(part))}; give x and the same others for each split"
            )
    try:
        joined = {key: np.concatenate([part[key] for part in found.values()]) for key in sorted(keys)}
    except ValueError as problem:
        raise UserError(f"{path}: its splits have rows of different shapes; give all one shape") from problem
    joined["split"] = np.repeat(list(found), [len(part["x"]) for part in found.values()])
    return joined


def read_table(path: Path, words: Sequence[str]) -> tuple[Any, int]:
    """Returns a table, and the line of its first row where lines can be counted, else 0.

    Args:
        words: columns that are read as words, whatever they look like.
    """
    if kind_of(path) == "text":
        return _read_text(path, words)
    try:
        table = pyarrow.parquet.read_table(pa.BufferReader(read_file(path, AGAIN)))
        table.validate(full=True)
    except (pa.ArrowException, OSError) as problem:
        raise UserError(f"{path} is no whole Parquet file ({_first_line(problem)}); {AGAIN}") from problem
    refuse_duplicates(table.column_names, str(path))
    kept = [name for name in table.column_names if not re.fullmatch(r"__index_level_\d+__", name)]
    return table.select(kept).replace_schema_metadata(None), 0


def _read_text(path: Path, words: Sequence[str]) -> tuple[Any, int]:
    raw = read_file(path, AGAIN).removeprefix(b"\xef\xbb\xbf")
    try:
        raw.decode()
    except UnicodeDecodeError as problem:
        raise UserError(f"{path} is not UTF-8 at byte {problem.start}; save it as UTF-8") from problem
    raw = raw.lstrip(b"\r\n")
    if not raw.strip():
        raise UserError(f"{path} is empty; give it a header and at least one row")
    first = re.split(rb"[\r\n]", raw, maxsplit=1)[0].decode()
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=first.count)
    fields = [field.strip() for field in next(csv.reader([first], delimiter=delimiter))]
    is_header = not all(_is_number(field) or field in MISSING for field in fields)
    names = fields if is_header else [str(i) for i in range(len(fields))]
    if "" in names:
        raise UserError(
            f"{path}: column {names.index('')} has no name in the header; name it, or write the file without the row "
            "numbers"
        )
    refuse_duplicates(names, str(path))
    body = raw[len(first.encode()) :].lstrip(b"\r\n") if is_header else raw
    if not body.strip():
        raise UserError(f"{path} has a header but no rows; give at least one")
    as_words = [name for name in names if name in words or name.lower() in CLIENT_COLUMNS]
    return _parse(path, body, names, delimiter, as_words, 2 if is_header else 1), 2 if is_header else 1


def _parse(
    path: Path, body: bytes, names: list[str], delimiter: str, words: Sequence[str], first_line: int
) -> Any:
    """Returns rows of text as a table; a row with too few or too many fields is refused by line."""
    wrong: list[Any] = []

    def keep(row: Any) -> str:
        wrong.append(row)
        return "skip"

    def parse(threads: bool) -> Any:
        wrong.clear()
        return pyarrow.csv.read_csv(
            pa.BufferReader(body),
            pyarrow.csv.ReadOptions(column_names=names, use_threads=threads),
            pyarrow.csv.ParseOptions(delimiter=delimiter, invalid_row_handler=keep),
            pyarrow.csv.ConvertOptions(
                null_values=list(MISSING),
                strings_can_be_null=True,
                column_types=dict.fromkeys(words, pa.string()),
            ),
        )

    try:
        table = parse(threads=True)
        if wrong:
            parse(threads=False)
    except pa.ArrowException as problem:
        raise UserError(f"{path} is no table of text ({_first_line(problem)}); {AGAIN}") from problem
    if wrong:
        row = wrong[0]
        raise UserError(
            f"{path}, line {row.number + first_line - 1}: it has {row.actual_columns} fields but the table has "
            f"{row.expected_columns} columns; correct the line"
        )
    return table


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_line(problem: Exception) -> str:
    return str(problem).split("\n", 1)[0]
