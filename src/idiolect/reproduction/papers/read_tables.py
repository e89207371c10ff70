"""From TOML to tables; what is not as it should be is refused on loading, by name.

What a cell is follows from its table, its row and its column together, the column having the last word.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from idiolect.reproduction.papers.checks import refuse_repeated, refuse_unknown
from idiolect.reproduction.papers.reading import KEYS, Reading
from idiolect.reproduction.papers.table import Cell, Column, Paper, Row, Table

__all__ = ["read_paper", "read_tables"]

Block = Mapping[str, Any]

MISSING = "-"
RUN = KEYS | {"scenarios", "method", "official_method", "options", "unit"}
IN_TABLE = {"id", "caption", "spread", "notes", "reading", "column", "row"} | RUN - KEYS
IN_COLUMN = RUN | {"id", "label", "note"}
IN_ROW = RUN | {"label", "values", "spreads"}


def read_paper(text: str) -> Paper:
    return Paper(**tomllib.loads(text)["paper"])


def read_tables(text: str) -> list[Table]:
    document = tomllib.loads(text)
    found = [_table(block, document["paper"]["id"]) for block in document.get("table", [])]
    refuse_repeated("tables", (table.id for table in found))
    return found


def _table(block: Block, paper: str) -> Table:
    where = f"table {block.get('id')}"
    refuse_unknown(where, block, IN_TABLE)
    if block.get("spread", "") not in ("", "settings", "clients"):
        raise ValueError(f"{where}: spread is {block['spread']!r}")
    columns, rows = block["column"], block["row"]
    refuse_repeated(f"columns of {where}", (column["id"] for column in columns))
    refuse_repeated(f"rows of {where}", (row["label"] for row in rows))
    cells: list[Cell] = []
    for row in rows:
        refuse_unknown(f"{where}, row {row.get('label')}", row, IN_ROW)
        printed = _printed(f"{where}, row {row['label']}", row, len(columns))
        cells += [_cell(block, row, column, *pair) for column, pair in zip(columns, printed, strict=True)]
    for column in columns:
        refuse_unknown(f"{where}, column {column['id']}", column, IN_COLUMN)
    return Table(
        id=block["id"],
        paper=paper,
        caption=block["caption"],
        spread=block.get("spread", ""),
        notes=tuple(block.get("notes", ())),
        columns=tuple(Column(c["id"], c["label"], c.get("note", "")) for c in columns),
        rows=tuple(Row(row["label"]) for row in rows),
        cells=tuple(cells),
    )


def _printed(where: str, row: Block, width: int) -> list[tuple[float | None, float | None]]:
    """Value and spread of every cell of a row."""
    values, spreads = row["values"], row.get("spreads", [MISSING] * width)
    if not len(values) == len(spreads) == width:
        raise ValueError(f"{where}: {len(values)} values and {len(spreads)} spreads for {width} columns")
    numbers = [[_number(where, text) for text in texts] for texts in (values, spreads)]
    pairs = list(zip(*numbers, strict=True))
    if any(value is None and spread is not None for value, spread in pairs):
        raise ValueError(f"{where}: a spread without a value")
    return pairs


def _number(where: str, text: Any) -> float | None:
    if text == MISSING:
        return None
    if isinstance(text, bool) or not isinstance(text, int | float):
        raise ValueError(f"{where}: {text!r} is neither a number nor {MISSING!r}")
    return float(text)


def _cell(table: Block, row: Block, column: Block, value: float | None, spread: float | None) -> Cell:
    where = f"table {table['id']}, {row['label']}, {column['id']}"
    layers = [table.get("reading", {}), row, column]
    reading = Reading.merged(*layers)
    reading.check(where)
    found: dict[str, Any] = {"scenarios": [], "method": "", "official_method": "", "unit": "", "options": {}}
    for layer in (table, row, column):
        options = found["options"] | layer.get("options", {})
        found |= {key: layer[key] for key in found if key in layer} | {"options": options}
    if not found["scenarios"] or (reading.source != "federation" and not found["method"]):
        raise ValueError(f"{where}: no scenario, or no method")
    found["scenarios"] = tuple(found["scenarios"])
    return Cell(table["id"], row["label"], column["id"], value, spread, reading=reading, **found)
