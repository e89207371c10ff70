"""The Parquet files of a run: what each is called and which columns it holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from idiolect.records.atomic import replacing
from idiolect.records.digest import file_digest
from idiolect.records.rows import ROUND_SCHEMA, ROW_SCHEMA

__all__ = ["CLIENTS_FILE", "ROUNDS_FILE", "SCHEMAS", "write_pieces", "write_table"]

ROUNDS_FILE = "rounds.parquet"
CLIENTS_FILE = "clients.parquet"
SCHEMAS = {ROUNDS_FILE: ROUND_SCHEMA, CLIENTS_FILE: ROW_SCHEMA}


ROW_GROUP = 1 << 20


def write_table(path: Path, table: pa.Table) -> str:
    """Writes a table atomically; gives the SHA-256 of the file back."""
    return write_pieces(path, [table], table.schema)


def write_pieces(path: Path, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
    """Writes one table that comes in pieces, atomically; the file is the same whatever the pieces.

    Raises:
        ValueError: a piece has other columns than ``schema``.
    """
    with replacing(path) as temporary:
        with pq.ParquetWriter(temporary, schema) as writer:
            waiting, written = schema.empty_table(), False
            for piece in pieces:
                if not piece.schema.equals(schema):
                    raise ValueError(
                        f"{path.name} needs the columns {schema.names}, got {piece.schema.names}"
                    )
                waiting = pa.concat_tables([waiting, piece])
                while waiting.num_rows >= ROW_GROUP:
                    writer.write_table(waiting.slice(0, ROW_GROUP).combine_chunks(), ROW_GROUP)
                    waiting, written = waiting.slice(ROW_GROUP), True
            if waiting.num_rows or not written:
                writer.write_table(waiting.combine_chunks(), ROW_GROUP)
        return file_digest(temporary)
