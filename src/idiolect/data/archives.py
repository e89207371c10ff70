"""Unpacks chosen members of a tar.gz or zip archive safely.

A member is written only where its whole name matches the pattern, to the path that the pattern's group gives, and
only if it is a plain file: no link, no path that leads out of the folder.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from idiolect.errors import UserError

__all__ = ["unpack"]


def unpack(archive: Path, members: re.Pattern[str], folder: Path, origin: str) -> set[str]:
    """Writes the members that match into the folder.

    Args:
        archive: a file that ends in .zip, or a gzipped tar.
        members: matched against whole names; group 1 is the path in the folder.
        origin: where the archive came from, for the message.

    Returns: the paths written, relative to the folder.
    """
    written = set()
    try:
        for name, opened in _plain_files(archive):
            match = members.fullmatch(name)
            if match:
                target = folder / match[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                with opened() as content, target.open("wb") as out:
                    shutil.copyfileobj(content, out)
                written.add(match[1])
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError) as problem:
        raise UserError(f"{origin} is not a whole archive ({problem})") from problem
    return written


def _plain_files(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    """Yields name and opener of each member; an opener works until the next member is asked for."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if not entry.is_dir():
                    yield entry.filename, partial(packed.open, entry)
    else:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.isfile():
                    yield member.name, partial(tar.extractfile, member)  # type: ignore[misc]
