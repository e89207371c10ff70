"""The two tables of a run, measurements and rounds: their schemas, buffers that collect rows, and Parquet files.

A row of measurements says what was measured (`metric`, `value`), on whom (`client`, `population`), on which data
(`split`; `none` for a number about a client that no data gave), with which inference rule (`predictor`) and when
(`round`, `moment`).  `samples` counts the rows of data behind the value; 0 where there are none or nobody counted.
In the files every row begins with the run that it belongs to: `run`, `method`, `seed`, `data_seed` and `scene`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from idiolect.errors import unknown_name
from idiolect.records.atomic_files import file_digest, replacing
from idiolect.records.scene import data_seed_of, scene_of

__all__ = [
    "CLIENTS_FILE",
    "FRONT_SCHEMA",
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
    "front_columns",
    "with_front",
    "write_pieces",
    "write_table",
]

NO_CLIENT = -1
SPLITS = ("train", "valid", "test", "server", "none")
MOMENTS = ("before", "after", "end")
POPULATIONS = ("selected", "all", "new")
FRONT_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("method", pa.string()),
        ("seed", pa.int64()),
        ("data_seed", pa.int64()),
        ("scene", pa.string()),
    ]
)
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
        ("samples", pa.int64()),
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
SCHEMAS = {
    ROUNDS_FILE: pa.schema([*FRONT_SCHEMA, *ROUND_SCHEMA]),
    CLIENTS_FILE: pa.schema([*FRONT_SCHEMA, *ROW_SCHEMA]),
}  # of the files
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

    def add(self, round: int, client: int, kind: RowKind, value: float, samples: int = 0) -> None:
        """Adds one measurement; `client` is -1 for the server's test set, or where no single client is meant."""
        self.extend(round, [client], kind, [value], [samples])

    def extend(
        self,
        round: int,
        clients: Iterable[int],
        kind: RowKind,
        values: Iterable[float],
        samples: Iterable[int] | None = None,
    ) -> None:
        """Adds the same measurement on many clients, one value each.

        Args:
            samples: by client, the rows of data behind its value.
        """
        _refuse_unknown("split", kind.split, SPLITS)
        _refuse_unknown("moment", kind.moment, MOMENTS)
        _refuse_unknown("population", kind.population, POPULATIONS)
        ids, numbers = [int(client) for client in clients], [float(value) for value in values]
        same = [[word] * len(ids) for word in kind]
        counts = [0] * len(ids) if samples is None else [int(count) for count in samples]
        self._buffer.extend([[int(round)] * len(ids), ids, *same, numbers, counts])

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


def front_columns(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what every row of a run says about it: the columns of `FRONT_SCHEMA`."""
    return {
        "run": str(manifest["name"]),
        "method": str(manifest["method"]),
        "seed": int(manifest["seed"]),
        "data_seed": data_seed_of(manifest),
        "scene": scene_of(manifest),
    }


def with_front(table: pa.Table, front: Mapping[str, Any]) -> pa.Table:
    """Returns the table with the same values of `FRONT_SCHEMA` before every row."""
    columns = [pa.repeat(pa.scalar(front[field.name], field.type), table.num_rows) for field in FRONT_SCHEMA]
    fields = [*FRONT_SCHEMA, *table.schema]
    return pa.table([*columns, *table.columns], schema=pa.schema(fields))


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
