"""The buffers of rows and rounds."""

from __future__ import annotations

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

from idiolect.errors import UserError
from idiolect.records import ROUND_SCHEMA, ROW_SCHEMA, RoundBuffer, RowBuffer, RowKind


def fill(buffer: RowBuffer, rounds: range) -> RowBuffer:
    for number in rounds:
        clients, values = np.arange(3), np.array([0.1, 0.2, 0.3]) * number
        buffer.extend(number, clients, RowKind("test", "global", "after", "all", "accuracy"), values)
        buffer.add(number, -1, RowKind("server", "global", "after", "all", "accuracy"), 0.5)
    return buffer


def parquet(buffer: RowBuffer) -> bytes:
    target = io.BytesIO()
    pq.write_table(buffer.table(), target)
    return target.getvalue()


def test_rows_keep_order_and_types() -> None:
    table = fill(RowBuffer(), range(1, 3)).table()
    assert table.schema.equals(ROW_SCHEMA)
    assert table["client"].to_pylist() == [0, 1, 2, -1, 0, 1, 2, -1]
    assert table["value"].to_pylist()[4:] == pytest.approx([0.2, 0.4, 0.6, 0.5])


def test_rows_give_the_same_file_however_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = parquet(fill(RowBuffer(), range(1, 6)))
    looked_at = fill(RowBuffer(), range(1, 4))
    assert looked_at.table().num_rows == 12
    assert parquet(fill(looked_at, range(4, 6))) == expected
    monkeypatch.setattr("idiolect.records.tables.SEAL", 5)
    sealed = fill(RowBuffer(), range(1, 6))
    assert len(sealed) == 20 and parquet(sealed) == expected


def test_rows_that_were_taken_are_forgotten() -> None:
    buffer = fill(RowBuffer(), range(1, 3))
    assert buffer.take().equals(fill(RowBuffer(), range(1, 3)).table())
    assert len(buffer) == 0 and buffer.table().num_rows == 0
    assert fill(buffer, range(3, 4)).take().equals(fill(RowBuffer(), range(3, 4)).table())


@pytest.mark.parametrize(
    ("key", "wrong"), [("split", "tset"), ("moment", "During"), ("population", "everyone")]
)
def test_rows_with_a_wrong_word_are_refused_by_name(key: str, wrong: str) -> None:
    row = {"split": "test", "predictor": "p", "moment": "end", "population": "all", "metric": "m", key: wrong}
    buffer = RowBuffer()
    with pytest.raises(UserError, match=f"unknown {key} '{wrong}'"):
        buffer.add(1, 0, RowKind(**row), 1.0)
    assert len(buffer) == 0


def test_rows_of_unequal_length_are_refused_whole() -> None:
    buffer = RowBuffer()
    with pytest.raises(ValueError, match="one length"):
        buffer.extend(1, [0, 1], RowKind("test", "global", "after", "all", "accuracy"), [0.5])
    assert buffer.table().num_rows == 0


def test_rounds_keep_their_schema() -> None:
    buffer = RoundBuffer()
    buffer.add(1, 0.5, 10, 2**40, 7, 1.25)
    assert buffer.table().schema.equals(ROUND_SCHEMA)
    assert buffer.table().to_pylist()[0]["bytes_down"] == 2**40
