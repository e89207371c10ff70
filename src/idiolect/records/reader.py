"""Reads finished runs and checks them against their checksums."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from idiolect.errors import UserError
from idiolect.records.atomic_files import file_digest
from idiolect.records.manifest import MANIFEST, read_manifest
from idiolect.records.run_naming import PARTIAL_SUFFIX
from idiolect.records.tables import (
    ADDED_LATER,
    CALIBRATION_FILE,
    CLIENTS_FILE,
    CONFUSION_FILE,
    COSTS_FILE,
    FINAL_FILES,
    ROUNDS_FILE,
    SCHEMAS,
    front_columns,
)

__all__ = ["Run", "read_run", "read_runs", "refuse_damaged"]

LOGGER = logging.getLogger(__name__)


class Run(NamedTuple):
    """A finished run; its tables carry the columns `run`, `method`, `seed`, `data_seed` and `scene` in front.

    Attributes:
        folder: where it lies; None for a record that was not read from a folder.
        costs: what each client spent.
        calibration, confusion: counts of the final evaluation.  Records of older versions have none of the three.
    """

    manifest: dict[str, Any]
    rounds: pd.DataFrame
    rows: pd.DataFrame
    folder: Path | None = None
    costs: pd.DataFrame = SCHEMAS[COSTS_FILE].empty_table().to_pandas()
    calibration: pd.DataFrame = SCHEMAS[CALIBRATION_FILE].empty_table().to_pandas()
    confusion: pd.DataFrame = SCHEMAS[CONFUSION_FILE].empty_table().to_pandas()


def read_run(folder: str | Path) -> Run:
    """Reads one finished run.

    Raises:
        UserError: the folder is no run, is unfinished, or a table does not match its checksum.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest["status"] != "finished" or folder.name.endswith(PARTIAL_SUFFIX):
        raise UserError(
            f"{folder} is an unfinished run (status {manifest['status']!r}); resume it or remove it"
        )
    rounds, rows = (_table(folder, file, manifest) for file in (ROUNDS_FILE, CLIENTS_FILE))
    return Run(manifest, rounds, rows, folder, *(_table(folder, file, manifest) for file in FINAL_FILES))


def read_runs(
    where: str | Path | Iterable[str | Path], say: Callable[[str], None] = LOGGER.warning
) -> list[Run]:
    """Reads every finished run in one folder or in several; a folder may itself be a run.

    Runs come in the order of the list, within a folder by name, and each only once.

    Args:
        where: a folder or several.
        say: gets one sentence for each unfinished run passed over.

    Raises:
        UserError: nothing was found, or a run is damaged.
    """
    places = [Path(where)] if isinstance(where, str | Path) else [Path(place) for place in where]
    folders: dict[Path, Path] = {}
    for place in places:
        for folder in _runs_in(place, say):
            folders.setdefault(folder.resolve(), folder)
    if not folders:
        raise UserError(f"no finished run in {', '.join(map(str, places)) or 'an empty list of folders'}")
    return [read_run(folder) for folder in folders.values()]


def _runs_in(place: Path, say: Callable[[str], None]) -> list[Path]:
    if not place.is_dir():
        raise UserError(f"{place} is not a folder")
    if (place / MANIFEST).is_file() or place.name.endswith(PARTIAL_SUFFIX):
        return [place]
    found = sorted(path for path in place.iterdir() if (path / MANIFEST).is_file())
    for folder in found:
        if folder.name.endswith(PARTIAL_SUFFIX):
            say(f"{folder} is an unfinished run and is left out")
    return [folder for folder in found if not folder.name.endswith(PARTIAL_SUFFIX)]


def refuse_damaged(folder: Path, manifest: dict[str, Any]) -> None:
    """Checks every table of a run against its checksum, without reading the tables.

    Raises:
        UserError: a table is missing, or is not the one that the run wrote.
    """
    for file in SCHEMAS:
        _is_recorded(folder, file, manifest)


def _is_recorded(folder: Path, file: str, manifest: dict[str, Any]) -> bool:
    """Returns whether the run has the table, as it was written; records of older versions lack some."""
    path = folder / file
    digests = manifest.get("sha256")
    if isinstance(digests, dict) and file not in digests and file in FINAL_FILES:
        return False
    if not isinstance(digests, dict) or file not in digests:
        raise UserError(f"{folder} is damaged: its {MANIFEST} has no checksum for {file}")
    if not path.is_file():
        raise UserError(f"{folder} is damaged: {file} is missing")
    if file_digest(path) != digests[file]:
        raise UserError(f"{folder} is damaged: {file} does not match its checksum")
    return True


def _table(folder: Path, file: str, manifest: dict[str, Any]) -> pd.DataFrame:
    if not _is_recorded(folder, file, manifest):
        return SCHEMAS[file].empty_table().to_pandas()
    path = folder / file
    try:
        table = pq.read_table(path)
    except pa.ArrowException as error:
        raise UserError(f"{folder} is damaged: {file} is no Parquet file ({error})") from error
    front, names = front_columns(manifest), SCHEMAS[file].names
    lacking = {name for name in names if name not in table.schema.names}
    if table.schema.names != [n for n in names if n not in lacking] or not lacking <= ADDED_LATER.keys():
        raise UserError(f"{folder} is damaged: {file} has other columns than a run's")
    frame = table.to_pandas()
    for name in names:
        if name not in frame:
            frame[name] = front.get(name, ADDED_LATER[name])
    return frame[names]
