"""The two tables of a run, measurements and rounds: their schemas, buffers that collect rows, and Parquet files.

A row of measurements says what was measured (`metric`, `value`), on whom (`client`, `population`), on which data
(`split`; `none` for a number about a client that no data gave), with which inference rule (`predictor`) and when
(`round`, `moment`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from idiolect.errors import unknown_name
from idiolect.records.atomic_files import file_digest, replacing

__all__ = [
    "CLIENTS_FILE",
    "MOMENTS",
    "NO_CLIENT",
    "POPULATIONS",
    "ROUNDS_FILE",
    "ROUND_SCHEMA",
    "ROW_SCHEMA",
    "SCHEMAS",
    "SPLITS",
    "RoundBuffer",
    "RowBuffer",
    "RowKind",
    "TableBuffer",
    "write_pieces",
    "write_table",
]

NO_CLIENT = -1
SPLITS = ("train", "valid", "test", "server", "none")
MOMENTS = ("before", "after", "end")
POPULATIONS = ("selected", "all", "new")
ROW_SCHEMA = pa.schema(
    [
        ("round", pa.int32()),
        ("client", pa.int32()),
        ("split", pa.string()),
        ("predictor", pa.string()),
        ("moment", pa.string()),
        ("population", pa.string()),
        ("metric", pa.string()),
        ("value", pa.float64()),
    ]
)
ROUND_SCHEMA = pa.schema(
    [
        ("round", pa.int32()),
        ("seconds", pa.float64()),
        ("cohort", pa.int32()),
        ("bytes_down", pa.int64()),
        ("bytes_up", pa.int64()),
        ("train_loss", pa.float64()),
    ]
)
SEAL = 1 << 14  # rows that may wait as Python objects
ROUNDS_FILE = "rounds.parquet"
CLIENTS_FILE = "clients.parquet"
SCHEMAS = {ROUNDS_FILE: ROUND_SCHEMA, CLIENTS_FILE: ROW_SCHEMA}
ROW_GROUP = 1 << 20


class RowKind(NamedTuple):
    """What a row measures, as its columns say it: on which data, with which inference rule, when, on whom, and what."""

    split: str
    predictor: str
    moment: str
    population: str
    metric: str


class RowBuffer:
    """Collects measurements, the rows of `clients.parquet`."""

    def __init__(self) -> None:
        self._buffer = TableBuffer(ROW_SCHEMA)

    def __len__(self) -> int:
        return len(self._buffer)

    def add(self, round: int, client: int, kind: RowKind, value: float) -> None:
        """Adds one measurement; `client` is -1 for the server's test set, or where no single client is meant."""
        self.extend(round, [client], kind, [value])

    def extend(self, round: int, clients: Iterable[int], kind: RowKind, values: Iterable[float]) -> None:
        """Adds the same measurement on many clients, one value each."""
        _refuse_unknown("split", kind.split, SPLITS)
        _refuse_unknown("moment", kind.moment, MOMENTS)
        _refuse_unknown("population", kind.population, POPULATIONS)
        ids, numbers = [int(client) for client in clients], [float(value) for value in values]
        same = [[word] * len(ids) for word in kind]
        self._buffer.extend([[int(round)] * len(ids), ids, *same, numbers])

    def table(self) -> pa.Table:
        """Returns the measurements collected since the last `take`, with `ROW_SCHEMA`."""
        return self._buffer.table()

    def take(self) -> pa.Table:
        """Returns the same table and empties the buffer."""
        return self._buffer.take()


class RoundBuffer:
    """Collects the costs of each round, the rows of `rounds.parquet`."""

    def __init__(self) -> None:
        self._buffer = TableBuffer(ROUND_SCHEMA)

    def __len__(self) -> int:
        return len(self._buffer)

    def add(
        self, round: int, seconds: float, cohort: int, bytes_down: int, bytes_up: int, train_loss: float
    ) -> None:
        """Adds one round; `cohort` is the number of clients that took part, and bytes are summed over them."""
        row = (int(round), float(seconds), int(cohort), int(bytes_down), int(bytes_up), float(train_loss))
        self._buffer.extend([[value] for value in row])

    def table(self) -> pa.Table:
        """Returns the rounds collected since the last `take`, with `ROUND_SCHEMA`."""
        return self._buffer.table()

    def take(self) -> pa.Table:
        """Returns the same table and empties the buffer."""
        return self._buffer.take()


def _refuse_unknown(kind: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise unknown_name(kind, name, known)


class TableBuffer:
    """Collects rows for one schema, column by column.

    New values wait in Python lists until there are many of them or a table is asked for; then they become one
    contiguous Arrow table.  The same rows give the same table, in whatever portions they come.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._sealed: list[pa.Table] = []
        self._waiting: list[list[Any]] = [[] for _ in schema]

    def __len__(self) -> int:
        return sum(int(table.num_rows) for table in self._sealed) + len(self._waiting[0])

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
        """Returns all rows collected since the last `take`."""
        self._seal()
        whole = pa.concat_tables([self._schema.empty_table(), *self._sealed]).combine_chunks()
        self._sealed = [whole]
        return whole

    def take(self) -> pa.Table:
        """Returns the same table and empties the buffer."""
        whole = self.table()
        self._sealed = []
        return whole

    def _seal(self) -> None:
        if self._waiting[0]:
            self._sealed.append(pa.table(self._waiting, schema=self._schema))
            self._waiting = [[] for _ in self._schema]


def write_table(path: Path, table: pa.Table) -> str:
    """Writes a table atomically and returns the SHA-256 of the file."""
    return write_pieces(path, [table], table.schema)


def write_pieces(path: Path, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
    """Writes a table that comes in pieces, atomically, and returns the SHA-256 of the file.

    The file does not depend on how the table is cut into pieces.

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
