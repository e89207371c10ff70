"""The location of datasets on disk: an argument, else IDIOLECT_DATA, else ~/.cache/idiolect.

A dataset is looked for in its canonical sub-folder, and in the data folder itself when that folder bears
the canonical name.  The name matters: MNIST and Fashion-MNIST use the same file names, and one must never
be read as the other.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from pathlib import Path

from idiolect.data.sources import Source
from idiolect.errors import UserError

__all__ = [
    "DATA_VARIABLE",
    "data_folder",
    "destination",
    "fetch_again",
    "file_in",
    "is_present",
    "locate",
    "md5_of",
]

DATA_VARIABLE = "IDIOLECT_DATA"


def data_folder(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Returns the folder that holds the datasets, whether or not it exists yet."""
    chosen = data_dir or os.environ.get(DATA_VARIABLE) or Path("~/.cache/idiolect")
    try:
        return Path(chosen).expanduser()
    except RuntimeError as problem:
        raise UserError(
            f"the data folder {str(chosen)!r} names a home folder that cannot be found; give a full path "
            f"with --data-dir or {DATA_VARIABLE}"
        ) from problem


def file_in(folder: Path, name: str) -> Path | None:
    """Returns the file of that canonical name, or its unpacked twin without .gz; None where neither exists."""
    found = (folder / each for each in (name, name.removesuffix(".gz")))
    return next((path for path in found if os.path.isfile(path)), None)


def destination(source: Source, root: Path) -> Path:
    """Returns the folder that a download of this dataset goes to."""
    bears_name = root.resolve().name == source.folder and not os.path.isdir(root / source.folder)
    return root if bears_name else root / source.folder


def is_present(source: Source, root: Path) -> bool:
    """Whether everything that the dataset needs is there."""
    return not _missing(source, destination(source, root))


def locate(source: Source, root: Path) -> Path:
    """Returns the folder that holds everything the dataset needs; the error says where it looked and how to get it."""
    folder = destination(source, root)
    missing = _missing(source, folder)
    if missing:
        what = "found no" if len(missing) == len(source.files) + len(source.needs) else "is missing"
        raise UserError(
            f"dataset {source.name!r}: {what} {', '.join(missing)} in {folder}; {fetch_again(source, root)}"
        )
    return folder


def fetch_again(source: Source, root: Path) -> str:
    """Returns the advice that ends every error about a missing or broken file."""
    folder = destination(source, root)
    if not source.base_url:
        return f"{source.by_hand} {folder}"
    command = f"`idiolect datasets get {source.name} --data-dir {shlex.quote(str(root))}`"
    if source.files or not os.path.isdir(folder):
        return f"get it with {command}"
    return f"remove {folder} and get it anew with {command}"


def md5_of(path: Path) -> str | None:
    """Returns the md5 of a file, or None where there is no file."""
    if not path.is_file():
        return None
    with path.open("rb") as stored:
        return hashlib.file_digest(stored, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _missing(source: Source, folder: Path) -> list[str]:
    files = [file.name for file in source.files if file_in(folder, file.name) is None]
    return files + [need.replace("|", " or ") for need in source.needs if not _met(need, folder)]


def _met(need: str, folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) is not None for pattern in need.split("|"))
