"""A table that grows row by row and is kept column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

__all__ = ["TableBuffer"]


SEAL = 1 << 14  # rows that may wait as Python objects


class TableBuffer:
    """Collects columns for one schema.  New values wait in lists until there are many, or until a table is asked
    for, which seals them into one contiguous table: the same rows give the same table, however they came."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._sealed: list[pa.Table] = []
        self._waiting: list[list[Any]] = [[] for _ in schema]

    def __len__(self) -> int:
        return sum(table.num_rows for table in self._sealed) + len(self._waiting[0])

    def extend(self, columns: Sequence[Sequence[Any]]) -> None:
        """Appends equally long columns, in the order of the schema."""
        lengths = {len(column) for column in columns}
        if len(columns) != len(self._waiting) or len(lengths) != 1:
            raise ValueError(
                f"{len(self._waiting)} columns of one length expected, got lengths {sorted(lengths)}"
            )
        for waiting, column in zip(self._waiting, columns, strict=True):
            waiting.extend(column)
        if len(self._waiting[0]) >= SEAL:
            self._seal()

    def table(self) -> pa.Table:
        """Everything collected and not taken yet."""
        self._seal()
        whole = pa.concat_tables([self._schema.empty_table(), *self._sealed]).combine_chunks()
        self._sealed = [whole]
        return whole

    def take(self) -> pa.Table:
        """The same, and forgets it."""
        whole = self.table()
        self._sealed = []
        return whole

    def _seal(self) -> None:
        if self._waiting[0]:
            self._sealed.append(pa.table(self._waiting, schema=self._schema))
            self._waiting = [[] for _ in self._schema]
