"""Fetching a dataset from its home: checked, whole, or not at all.

Everything is written into a temporary folder beside the destination, compared with its checksum, and only
then renamed into place.  From an archive only the expected members are taken, by name, as plain files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any

from idiolect.data.catalogue import names
from idiolect.data.location import data_folder, destination
from idiolect.data.sources import SOURCES, KnownFile, Source
from idiolect.errors import UserError, unknown_name

__all__ = ["Opener", "get", "open_url"]

Opener = Callable[[str], AbstractContextManager[IO[bytes]]]
Progress = Callable[[str, int], None]
_CHUNK = 1 << 20


def open_url(url: str) -> Any:
    """Opens an address for reading; gives up after a minute of silence."""
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
    folder = destination(source, root)
    try:
        if any(_md5(folder / file.name) != file.md5 for file in source.files):
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root, prefix=f".{name}-") as stage:
                _fetch(source, Path(stage), opener, progress)
                _put_in_place(source, Path(stage), folder)
    except OSError as problem:
        raise UserError(
            f"cannot write dataset {name!r} to {folder} ({problem.strerror or problem}); free some "
            f"room there or choose another folder with --data-dir"
        ) from problem
    return folder


def _put_in_place(source: Source, stage: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for file in source.files:
        os.replace(stage / file.name, folder / file.name)


def _fetch(source: Source, stage: Path, opener: Opener, progress: Progress | None) -> None:
    """Brings every file of the dataset into the stage, checked."""
    downloads = (source.archive,) if source.archive else source.files
    for file in downloads:
        url = source.base_url + file.name
        with (stage / file.name).open("wb") as out:
            for chunk in _chunks(url, opener):
                out.write(chunk)
                if progress:
                    progress(file.name, out.tell())
        _verify(stage / file.name, file, url)
    if source.archive:
        _unpack(source, stage / source.archive.name, stage)


def _chunks(url: str, opener: Opener) -> Iterator[bytes]:
    try:
        with opener(url) as response:
            while chunk := response.read(_CHUNK):
                yield chunk
    except (OSError, HTTPException) as problem:
        raise UserError(
            f"cannot download {url} ({problem}); check the network, or fetch the file elsewhere and put it "
            f"in place by hand"
        ) from problem


def _verify(path: Path, file: KnownFile, origin: str) -> None:
    found = _md5(path)
    if found != file.md5:
        raise UserError(f"{origin} arrived damaged: expected md5 {file.md5}, found {found}; try again later")


def _unpack(source: Source, archive: Path, stage: Path) -> None:
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for file in source.files:
                content = tar.extractfile(_plain_member(tar, f"{source.folder}/{file.name}"))
                assert content is not None  # so it is for a plain file
                with content, (stage / file.name).open("wb") as out:
                    shutil.copyfileobj(content, out)
                _verify(stage / file.name, file, f"{archive.name}, member {file.name},")
    except (tarfile.TarError, EOFError, zlib.error) as problem:
        raise UserError(f"{source.base_url}{archive.name} is not a whole archive ({problem})") from problem


def _plain_member(tar: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    member = next((member for member in tar if member.name == name), None)
    if member is None or not member.isfile():
        raise tarfile.TarError(f"it has no plain file {name}")
    return member


def _md5(path: Path) -> str | None:
    """The md5 of a file, or None where there is none."""
    if not path.is_file():
        return None
    with path.open("rb") as stored:
        return hashlib.file_digest(stored, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
