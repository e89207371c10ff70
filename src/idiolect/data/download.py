"""Downloads a dataset from its home, with checksums: whole or not at all.

Everything is written into a temporary folder beside the destination, compared with its checksum, and only
then renamed into place.
"""

from __future__ import annotations

import os
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

from idiolect.data.archives import unpack
from idiolect.data.catalogue import names
from idiolect.data.location import data_folder, destination, fetch_again, file_in, is_present, md5_of
from idiolect.data.sources import SOURCES, KnownFile, Source
from idiolect.errors import UserError, unknown_name

__all__ = ["Opener", "get", "open_url"]

Opener = Callable[[str], AbstractContextManager[IO[bytes]]]
Progress = Callable[[str, int], None]
_CHUNK = 1 << 20


def open_url(url: str) -> Any:
    """Opens an address for reading, with a timeout of a minute."""
    return urllib.request.urlopen(url, timeout=60)


def get(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    opener: Opener = open_url,
    progress: Progress | None = None,
) -> Path:
    """Downloads a dataset unless its canonical files are already there.

    Args:
        name: a dataset of the catalogue that lives in files.
        data_dir: as for `load`.
        opener: opens an address for reading; tests put their own here.
        progress: called with the name of a file and the bytes fetched so far.

    Returns: the folder that holds the files.
    """
    if name not in names():
        raise unknown_name("dataset", name, names())
    if name not in SOURCES:
        raise UserError(f"dataset {name!r} comes with idiolect; there is nothing to download")
    source, root = SOURCES[name], data_folder(data_dir)
    if not source.base_url:
        raise UserError(f"dataset {name!r} has no plain download; {fetch_again(source, root)}")
    folder = destination(source, root)
    try:
        if not _is_whole(source, root, folder):
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root, prefix=f".{name}-") as stage:
                _fetch(source, Path(stage), folder, opener, progress)
                _put_in_place(Path(stage), folder)
    except OSError as problem:
        raise UserError(
            f"cannot write dataset {name!r} to {folder} ({problem.strerror or problem}); free some "
            f"room there or choose another folder with --data-dir"
        ) from problem
    return folder


def _is_whole(source: Source, root: Path, folder: Path) -> bool:
    """Whether everything is there, with the canonical checksum where one is known."""
    return is_present(source, root) and all(
        md5_of(folder / file.name) == file.md5 if file.md5 else file_in(folder, file.name) is not None
        for file in source.files + source.more_files
    )


def _put_in_place(stage: Path, folder: Path) -> None:
    """Moves the fetched files to their folder; a folder that they replace is moved to the stage and deleted with it."""
    folder.mkdir(exist_ok=True)
    for fetched in sorted(stage.iterdir()):
        target = folder / fetched.name
        if target.is_dir():
            os.replace(target, stage / f"old {fetched.name}")
        os.replace(fetched, target)


def _fetch(source: Source, stage: Path, folder: Path, opener: Opener, progress: Progress | None) -> None:
    """Downloads and verifies every file of the dataset into the stage."""
    for file in (source.archive,) if source.archive else source.files:
        url = source.base_url + file.name
        with (stage / file.name).open("wb") as out:
            for chunk in _chunks(url, folder, opener):
                out.write(chunk)
                if progress:
                    progress(file.name, out.tell())
        _verify(stage / file.name, file, url)
    if source.archive:
        _unpack(source, source.archive, stage)


def _chunks(url: str, folder: Path, opener: Opener) -> Iterator[bytes]:
    try:
        with opener(url) as response:
            while chunk := response.read(_CHUNK):
                yield chunk
    except (OSError, HTTPException) as problem:
        raise UserError(
            f"cannot download {url} ({problem}); check the network, or fetch the dataset's files elsewhere and put "
            f"them in {folder}"
        ) from problem


def _verify(path: Path, file: KnownFile, origin: str) -> None:
    found = md5_of(path)
    if file.md5 and found != file.md5:
        raise UserError(f"{origin} arrived damaged: expected md5 {file.md5}, found {found}; try again later")


def _unpack(source: Source, archive: KnownFile, stage: Path) -> None:
    """Unpacks the dataset's files from the archive, which is then removed."""
    origin = source.base_url + archive.name
    written = unpack(stage / archive.name, source.members, stage, origin)
    for file in source.files + source.more_files:
        if file.name not in written:
            raise UserError(f"{origin} is not a whole archive (it has no plain file {file.name})")
        _verify(stage / file.name, file, f"{archive.name}, member {file.name},")
    if not written:
        raise UserError(f"{origin} is not a whole archive (it holds nothing of the dataset)")
    (stage / archive.name).unlink()
