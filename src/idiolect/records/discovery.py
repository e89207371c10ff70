"""Finds the folders of sound runs, and reads their manifests alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.errors import UserError
from idiolect.records.manifest import read_manifest
from idiolect.records.reader import refuse_damaged
from idiolect.records.run_naming import PARTIAL_SUFFIX
from idiolect.records.scene import data_seed_of

__all__ = ["FoundRun", "find_runs", "folders_of_runs"]

LOGGER = logging.getLogger(__name__)
SIGNS = ("manifest.json", "rounds.parquet", "clients.parquet")  # a folder with one of them is taken for a run


class FoundRun(NamedTuple):
    """A finished run whose tables match their checksums and have not been read."""

    folder: Path
    manifest: dict[str, Any]


def folders_of_runs(place: Path) -> Iterator[Path]:
    """Yields the folders at any depth that look like runs, in order, without searching inside them."""
    if any((place / sign).is_file() for sign in SIGNS):
        yield place
        return
    for child in sorted(path for path in place.iterdir() if path.is_dir() and not path.is_symlink()):
        yield from folders_of_runs(child)


def find_runs(
    where: str | Path | Iterable[str | Path], say: Callable[[str], None] = LOGGER.warning
) -> list[FoundRun]:
    """Finds every finished run in folders and their subfolders; a run that lies there twice counts once.

    A run that is unfinished or damaged is left out with one sentence.

    Args:
        where: a folder or several, each a run or one that holds runs at any depth.
        say: gets one sentence for each folder that is left out.

    Raises:
        UserError: a place is not a folder or cannot be read, or there is no finished run.
    """
    places = [Path(where)] if isinstance(where, str | Path) else [Path(place) for place in where]
    found: dict[tuple[str, int, int], FoundRun] = {}
    for folder in dict.fromkeys(folder for place in places for folder in _looked_for(place)):
        try:
            run = _finished(folder)
        except UserError as error:
            say(f"{error}; it is left out")
            continue
        manifest = run.manifest
        if manifest.get("kind") == "study":
            continue
        family = str(manifest.get("family_hash") or manifest["name"])
        first = found.setdefault((family, data_seed_of(manifest), int(manifest["seed"])), run)
        if first is not run:
            say(f"{folder} repeats the run {first.manifest['name']} and is left out")
    if not found:
        raise UserError(f"no finished run in {', '.join(map(str, places)) or 'an empty list of folders'}")
    return list(found.values())


def _looked_for(place: Path) -> list[Path]:
    if not place.is_dir():
        raise UserError(f"{place} is not a folder")
    try:
        return list(folders_of_runs(place))
    except OSError as error:
        raise UserError(f"{error.filename or place} cannot be read: {error.strerror}") from error


def _finished(folder: Path) -> FoundRun:
    manifest = read_manifest(folder)
    if manifest["status"] != "finished" or folder.name.endswith(PARTIAL_SUFFIX):
        raise UserError(f"{folder} is an unfinished run")
    try:
        refuse_damaged(folder, manifest)
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}") from error
    return FoundRun(folder, manifest)
