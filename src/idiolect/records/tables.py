"""The two tables of a run, one row for each measurement and one for each round: schemas, buffers, Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

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


class RowBuffer:
    """Collects measurements."""

    def __init__(self) -> None:
        self._buffer = TableBuffer(ROW_SCHEMA)

    def __len__(self) -> int:
        return len(self._buffer)

    def add(
        self,
        round: int,
        client: int,
        split: str,
        predictor: str,
        moment: str,
        population: str,
        metric: str,
        value: float,
    ) -> None:
        """One measurement; `client` is -1 for the server's test set, or where no single client is meant."""
        self.extend(round, [client], split, predictor, moment, population, metric, [value])

    def extend(
        self,
        round: int,
        clients: Iterable[int],
        split: str,
        predictor: str,
        moment: str,
        population: str,
        metric: str,
        values: Iterable[float],
    ) -> None:
        """The same measurement on many clients, one value each."""
        _refuse_unknown("split", split, SPLITS)
        _refuse_unknown("moment", moment, MOMENTS)
        _refuse_unknown("population", population, POPULATIONS)
        ids, numbers = [int(client) for client in clients], [float(value) for value in values]
        same = [[word] * len(ids) for word in (split, predictor, moment, population, metric)]
        self._buffer.extend([[int(round)] * len(ids), ids, *same, numbers])

    def table(self) -> pa.Table:
        """All measurements that nobody took, with `ROW_SCHEMA`."""
        return self._buffer.table()

    def take(self) -> pa.Table:
        """The same, and forgets them."""
        return self._buffer.take()


class RoundBuffer:
    """Collects what each round cost."""

    def __init__(self) -> None:
        self._buffer = TableBuffer(ROUND_SCHEMA)

    def __len__(self) -> int:
        return len(self._buffer)

    def add(
        self, round: int, seconds: float, cohort: int, bytes_down: int, bytes_up: int, train_loss: float
    ) -> None:
        """One round; `cohort` is the number of clients that took part, bytes are summed over them."""
        row = (int(round), float(seconds), int(cohort), int(bytes_down), int(bytes_up), float(train_loss))
        self._buffer.extend([[value] for value in row])

    def table(self) -> pa.Table:
        """All rounds that nobody took, with `ROUND_SCHEMA`."""
        return self._buffer.table()

    def take(self) -> pa.Table:
        """The same, and forgets them."""
        return self._buffer.take()


def _refuse_unknown(kind: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise unknown_name(kind, name, known)


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
