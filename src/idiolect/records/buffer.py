"""A table that grows row by row and is kept column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

__all__ = ["TableBuffer"]


class TableBuffer:
    """Collects columns for one schema.  New values wait in lists until `table` is asked for, which seals them
    into one contiguous table: the same rows give the same file, however often the buffer was read between."""

    def __init__(self, schema: pa.Schema, table: pa.Table | None = None) -> None:
        """Starts empty, or from a table saved earlier."""
        if table is not None and not table.schema.equals(schema):
            raise ValueError(f"the table has columns {table.schema.names}, expected {schema.names}")
        self._sealed = schema.empty_table() if table is None else table.replace_schema_metadata(None)
        self._waiting: list[list[Any]] = [[] for _ in schema]

    def __len__(self) -> int:
        return int(self._sealed.num_rows) + len(self._waiting[0])

    def extend(self, columns: Sequence[Sequence[Any]]) -> None:
        """Appends equally long columns, in the order of the schema."""
        lengths = {len(column) for column in columns}
        if len(columns) != len(self._waiting) or len(lengths) != 1:
            raise ValueError(
                f"{len(self._waiting)} columns of one length expected, got lengths {sorted(lengths)}"
            )
        for waiting, column in zip(self._waiting, columns, strict=True):
            waiting.extend(column)

    def table(self) -> pa.Table:
        """Everything collected so far."""
        if self._waiting[0]:
            schema = self._sealed.schema
            fresh = pa.table(self._waiting, schema=schema)
            self._sealed = pa.concat_tables([self._sealed, fresh]).combine_chunks()
            self._waiting = [[] for _ in schema]
        return self._sealed
