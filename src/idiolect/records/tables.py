"""The tables of a run: their schemas, buffers that collect rows, and Parquet files.

Measurements (`clients.parquet`) and rounds grow while a run goes on.  What each client spent (`costs.parquet`), and the
counts of the final evaluation from which calibration and confusions are computed, are written at its end.

A row of measurements says what was measured (`metric`, `value`), on whom (`client`, `population`), on which data
(`split`; `none` for a number about a client that no data gave), with which inference rule (`predictor`) and when
(`round`, `moment`).  `samples` counts the rows of data behind the value; 0 where there are none or nobody counted.
In the files every row begins with the run that it belongs to: `run`, `method`, `seed`, `data_seed` and `scene`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from idiolect.errors import unknown_name
from idiolect.records.atomic_files import file_digest, replacing
from idiolect.records.scene import data_seed_of, scene_of

__all__ = [
    "ADDED_LATER",
    "CALIBRATION_FILE",
    "CALIBRATION_SCHEMA",
    "CLIENTS_FILE",
    "CONFUSION_FILE",
    "CONFUSION_SCHEMA",
    "COSTS_FILE",
    "COST_SCHEMA",
    "FINAL_FILES",
    "FRONT_SCHEMA",
    "MOMENTS",
    "NO_CLIENT",
    "POPULATIONS",
    "ROUNDS_FILE",
    "ROUND_SCHEMA",
    "ROW_SCHEMA",
    "SCHEMAS",
    "SPLITS",
    "CountBuffer",
    "CountKind",
    "RoundBuffer",
    "RowBuffer",
    "RowKind",
    "TableBuffer",
    "completed",
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
        ("steps", pa.int64()),
        ("flops", pa.float64()),
        ("simulated_seconds", pa.float64()),
    ]
)
COST_SCHEMA = pa.schema(
    [
        ("client", pa.int32()),
        ("population", pa.string()),
        ("rounds", pa.int32()),
        ("steps", pa.int64()),
        ("flops", pa.float64()),
        ("bytes_down", pa.int64()),
        ("bytes_up", pa.int64()),
    ]
)
_COUNTED = [(name, ROW_SCHEMA.field(name).type) for name in ROW_SCHEMA.names[:6]]  # round to population
CALIBRATION_SCHEMA = pa.schema(
    [
        *_COUNTED,
        ("bin", pa.int32()),
        ("count", pa.int64()),
        ("confidence", pa.float64()),
        ("correct", pa.int64()),
    ]
)
CONFUSION_SCHEMA = pa.schema(
    [*_COUNTED, ("truth", pa.int32()), ("predicted", pa.int32()), ("count", pa.int64())]
)
SEAL = 1 << 14  # rows that may wait as Python objects
ROUNDS_FILE = "rounds.parquet"
CLIENTS_FILE = "clients.parquet"
COSTS_FILE = "costs.parquet"
CALIBRATION_FILE = "calibration.parquet"
CONFUSION_FILE = "confusion.parquet"
FINAL_FILES = (COSTS_FILE, CALIBRATION_FILE, CONFUSION_FILE)  # older records lack them
SCHEMAS = {
    file: pa.schema([*FRONT_SCHEMA, *schema])
    for file, schema in (
        (ROUNDS_FILE, ROUND_SCHEMA),
        (CLIENTS_FILE, ROW_SCHEMA),
        (COSTS_FILE, COST_SCHEMA),
        (CALIBRATION_FILE, CALIBRATION_SCHEMA),
        (CONFUSION_FILE, CONFUSION_SCHEMA),
    )
}  # of the files
ADDED_LATER: dict[str, Any] = {
    **dict.fromkeys(FRONT_SCHEMA.names),
    "samples": 0,
    "steps": None,
    "flops": None,
    "simulated_seconds": None,
}  # columns that older records lack, and what they hold there
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
        self,
        round: int,
        seconds: float,
        cohort: int,
        bytes_down: int,
        bytes_up: int,
        train_loss: float,
        steps: int | None = None,
        flops: float | None = None,
        simulated_seconds: float | None = None,
    ) -> None:
        """Adds one round; `cohort` clients took part, and bytes, steps and operations are summed over clients."""
        row = (int(round), float(seconds), int(cohort), int(bytes_down), int(bytes_up), float(train_loss))
        known = None if flops is None or flops != flops else float(flops)
        self._buffer.extend([[value] for value in (*row, steps, known, simulated_seconds)])

    def table(self) -> pa.Table:
        """Returns the rounds collected since the last `take`, with `ROUND_SCHEMA`."""
        return self._buffer.table()

    def take(self) -> pa.Table:
        """Returns the same table and empties the buffer."""
        return self._buffer.take()


class CountKind(NamedTuple):
    """What is counted, as the columns say it: on which data, with which inference rule, when and on whom."""

    split: str
    predictor: str
    moment: str
    population: str


class CountBuffer:
    """Collects the counts of the final evaluation, the rows of `calibration.parquet` and `confusion.parquet`."""

    def __init__(self) -> None:
        self._buffers = {
            "calibration": TableBuffer(CALIBRATION_SCHEMA),
            "confusion": TableBuffer(CONFUSION_SCHEMA),
        }

    def extend(self, table: str, round: int, kind: CountKind, rows: NDArray[np.float64]) -> None:
        """Adds rows of numbers whose columns are the client and what follows `population` in the schema."""
        _refuse_unknown("split", kind.split, SPLITS)
        _refuse_unknown("moment", kind.moment, MOMENTS)
        _refuse_unknown("population", kind.population, POPULATIONS)
        client, *numbers = rows.T
        types = (CALIBRATION_SCHEMA if table == "calibration" else CONFUSION_SCHEMA).types[6:]
        counted = [
            column.tolist() if pa.types.is_floating(type) else column.astype(np.int64).tolist()
            for column, type in zip(numbers, types, strict=True)
        ]
        same = [[word] * len(rows) for word in kind]
        self._buffers[table].extend(
            [[int(round)] * len(rows), client.astype(np.int64).tolist(), *same, *counted]
        )

    def tables(self) -> dict[str, pa.Table]:
        """Returns both tables by name, with what was counted since the last `take`."""
        return {name: buffer.table() for name, buffer in self._buffers.items()}

    def take(self) -> dict[str, pa.Table]:
        """Returns the tables that have rows, by name, and empties the buffer."""
        taken = {name: buffer.take() for name, buffer in self._buffers.items()}
        return {name: table for name, table in taken.items() if table.num_rows}


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


def completed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns a table that an older version wrote with the columns that it lacks; any other is returned as it is."""
    missing = [name for name in schema.names if name not in table.schema.names]
    if not missing or not set(missing) <= ADDED_LATER.keys():
        return table
    for name in missing:
        type = schema.field(name).type
        table = table.append_column(name, pa.repeat(pa.scalar(ADDED_LATER[name], type), table.num_rows))
    return table.select(schema.names).cast(schema)


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
