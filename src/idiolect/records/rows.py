"""The two tables of a run: one row per measurement, one row per round.

A measurement says what was measured (`metric`, `value`), on whom (`client`, `population`), on which data
(`split`; `none` for a number about a client that no data gave), with which inference rule (`predictor`) and when
(`round`, `moment`).
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from idiolect.errors import unknown_name
from idiolect.records.buffer import TableBuffer

__all__ = [
    "MOMENTS",
    "NO_CLIENT",
    "POPULATIONS",
    "ROUND_SCHEMA",
    "ROW_SCHEMA",
    "SPLITS",
    "RoundBuffer",
    "RowBuffer",
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
        _check("split", split, SPLITS)
        _check("moment", moment, MOMENTS)
        _check("population", population, POPULATIONS)
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


def _check(kind: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise unknown_name(kind, name, known)
