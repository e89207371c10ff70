"""Writes a run to its folder.

Everything goes to `<out>/<name>.partial`, which is renamed to `<out>/<name>` at the very end.  A folder without the
suffix is therefore a finished run, and an interrupted run leaves its last checkpoint.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from idiolect.errors import UserError
from idiolect.records.atomic_files import sync_folder
from idiolect.records.manifest import write_manifest
from idiolect.records.run_naming import finished_folder, partial_folder
from idiolect.records.tables import (
    CLIENTS_FILE,
    FINAL_FILES,
    FRONT_SCHEMA,
    ROUNDS_FILE,
    SCHEMAS,
    completed,
    front_columns,
    with_front,
    write_pieces,
)
from idiolect.records.write_lock import WriteLock

__all__ = ["RunWriter"]


class RunWriter:
    """Writes one run; used as a context manager, it releases the folder at the end.

    Attributes:
        folder: the partial folder, which holds checkpoints and exported models until the run is finished.
        final: the folder of the finished run.
        manifest: what is known about the run before its end.
    """

    def __init__(self, out_dir: str | Path, name: str, manifest: Mapping[str, Any]) -> None:
        """Opens the partial folder, new or left by an interrupted run, and writes a manifest with status "running".

        Raises:
            UserError: the run exists already, another process is writing it, or the folder cannot be made.
        """
        self.final = finished_folder(out_dir, name)
        self.folder = partial_folder(out_dir, name)
        self.manifest = {**manifest, "name": name}
        self._refuse_to_overwrite()
        self._resumed = self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot make the folder {self.folder} ({error.strerror}); choose another place with --out"
            ) from error
        self._lock = WriteLock(self.folder)
        write_manifest(self.folder, {**self.manifest, "status": "running"})

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *problem: object) -> None:
        self._lock.release()

    def finish(
        self,
        rounds: pa.Table | Iterable[pa.Table],
        rows: pa.Table | Iterable[pa.Table],
        extra_manifest: Mapping[str, Any] | None = None,
        final: Mapping[str, pa.Table | Iterable[pa.Table]] | None = None,
    ) -> Path:
        """Writes the tables and the manifest with their checksums, then renames the folder to its final name.

        Args:
            rounds: one row per round (`RoundBuffer.table()`), whole or in pieces.
            rows: one row per measurement (`RowBuffer.table()`), whole or in pieces.
            extra_manifest: entries known only at the end, such as timings; they may replace earlier ones.
            final: by name `costs`, `calibration` and `confusion`, whole or in pieces; what is left out is empty.

        Returns:
            The folder of the finished run.
        """
        self._refuse_to_overwrite()
        front = front_columns(self.manifest)
        digests = {}
        last_tables = {file: (final or {}).get(Path(file).stem, ()) for file in FINAL_FILES}
        for file, table in {ROUNDS_FILE: rounds, CLIENTS_FILE: rows, **last_tables}.items():
            pieces, schema = [table] if isinstance(table, pa.Table) else table, SCHEMAS[file]
            own = pa.schema(list(schema)[len(FRONT_SCHEMA) :])
            whole = (with_front(completed(piece, own), front) for piece in pieces)
            digests[file] = write_pieces(self.folder / file, whole, schema)
        last = {"name": self.final.name, "status": "finished", "sha256": digests}
        write_manifest(self.folder, {**self.manifest, **(extra_manifest or {}), **last})
        for stray in self.folder.glob(".*.tmp"):
            stray.unlink()
        try:
            os.rename(self.folder, self.final)
        except OSError as error:
            raise UserError(f"cannot rename {self.folder} to {self.final}: {error.strerror}") from error
        sync_folder(self.final.parent)
        self._lock.release()
        return self.final

    def discard(self) -> None:
        """Removes the partial folder, when the run ends before its first checkpoint.

        A folder that an interrupted run left stays, because its checkpoint can still be resumed.
        """
        if not self._resumed:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _refuse_to_overwrite(self) -> None:
        if self.final.exists():
            raise UserError(
                f"{self.final} is there already, and a run is never overwritten; move it away first"
            )
