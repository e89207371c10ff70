"""The Parquet files of a run: what each is called and which columns it holds."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from idiolect.records.atomic import replacing
from idiolect.records.digest import file_digest
from idiolect.records.rows import ROUND_SCHEMA, ROW_SCHEMA

__all__ = ["CLIENTS_FILE", "ROUNDS_FILE", "SCHEMAS", "write_table"]

ROUNDS_FILE = "rounds.parquet"
CLIENTS_FILE = "clients.parquet"
SCHEMAS = {ROUNDS_FILE: ROUND_SCHEMA, CLIENTS_FILE: ROW_SCHEMA}


def write_table(path: Path, table: pa.Table) -> str:
    """Writes a table atomically; gives the SHA-256 of the file back."""
    with replacing(path) as temporary:
        pq.write_table(table, temporary)
        return file_digest(temporary)
