"""Reads the papers' TOML files and finds papers, tables and figures by id; a malformed file is refused on loading.

What a table cell is follows from its table, its row and its column together; the column wins.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from idiolect.errors import unknown_name
from idiolect.reproduction.papers.metric_reading import READING_KEYS, MetricReading
from idiolect.reproduction.papers.paper_tables_and_figures import (
    FIGURE_KINDS,
    FigureLine,
    FigureNumber,
    Paper,
    PaperFigure,
    PaperTable,
    TableCell,
    TableColumn,
    TableRow,
)

__all__ = [
    "PAPERS",
    "figure",
    "figures",
    "papers",
    "read_figures",
    "read_paper",
    "read_tables",
    "table",
    "tables",
]

Block = Mapping[str, Any]

PAPERS = ("fedper", "fedphp", "map", "persfl", "superfed")
MISSING = "-"  # stands where a table prints no number

CELL_KEYS = {"scenarios", "method", "official_method", "options", "unit"}
TABLE_KEYS = {"id", "caption", "choice", "spread", "notes", "reading", "column", "row"} | CELL_KEYS
COLUMN_KEYS = CELL_KEYS | READING_KEYS | {"id", "label", "note"}
ROW_KEYS = CELL_KEYS | READING_KEYS | {"label", "values", "spreads"}

FIGURE_KEYS = {
    *("id", "kind", "caption", "notes", "scenarios", "number", "reading", "vary", "line"),
    *("lines_of", "compared_of", "tables", "column", "mark"),
}
LINE_KEYS = READING_KEYS | {"label", "scenarios", "method", "settings"}


@cache
def papers() -> dict[str, Paper]:
    """Returns every paper by id."""
    return {name: read_paper(_text(name)) for name in PAPERS}


def tables() -> tuple[PaperTable, ...]:
    """Returns every table, paper by paper."""
    return tuple(_all_tables().values())


def table(id: str) -> PaperTable:
    """Returns a table by its id.

    >>> table("map-table2").cell("MAP", "fa-lenet").value
    91.8
    """
    if id not in _all_tables():
        raise unknown_name("table", id, _all_tables())
    return _all_tables()[id]


def figures() -> tuple[PaperFigure, ...]:
    """Returns every figure, paper by paper."""
    return tuple(_all_figures().values())


def figure(id: str) -> PaperFigure:
    """Returns a figure by its id."""
    if id not in _all_figures():
        raise unknown_name("figure", id, _all_figures())
    return _all_figures()[id]


@cache
def _all_tables() -> dict[str, PaperTable]:
    return {found.id: found for name in PAPERS for found in read_tables(_text(name))}


@cache
def _all_figures() -> dict[str, PaperFigure]:
    return {found.id: found for name in PAPERS for found in read_figures(_text(name))}


def _text(name: str) -> str:
    return (files("idiolect.reproduction.papers") / f"{name}.toml").read_text("utf-8")


def read_paper(text: str) -> Paper:
    """Returns the paper that a TOML text describes."""
    return Paper(**tomllib.loads(text)["paper"])


def read_tables(text: str) -> list[PaperTable]:
    """Returns the tables of a TOML text."""
    document = tomllib.loads(text)
    found = [_table(block, document["paper"]["id"]) for block in document.get("table", [])]
    _refuse_repeated("tables", (table.id for table in found))
    return found


def _table(block: Block, paper: str) -> PaperTable:
    where = f"table {block.get('id')}"
    _refuse_unknown(where, block, TABLE_KEYS)
    if block.get("spread", "") not in ("", "settings", "clients"):
        raise ValueError(f"{where}: spread is {block['spread']!r}")
    columns, rows = block["column"], block["row"]
    _refuse_repeated(f"columns of {where}", (column["id"] for column in columns))
    _refuse_repeated(f"rows of {where}", (row["label"] for row in rows))
    cells: list[TableCell] = []
    for row in rows:
        _refuse_unknown(f"{where}, row {row.get('label')}", row, ROW_KEYS)
        printed = _printed(f"{where}, row {row['label']}", row, len(columns))
        cells += [_cell(block, row, column, *pair) for column, pair in zip(columns, printed, strict=True)]
    for column in columns:
        _refuse_unknown(f"{where}, column {column['id']}", column, COLUMN_KEYS)
    return PaperTable(
        id=block["id"],
        paper=paper,
        caption=block["caption"],
        choice=block.get("choice", ""),
        spread=block.get("spread", ""),
        notes=tuple(block.get("notes", ())),
        columns=tuple(TableColumn(c["id"], c["label"], c.get("note", "")) for c in columns),
        rows=tuple(TableRow(row["label"]) for row in rows),
        cells=tuple(cells),
    )


def _printed(where: str, row: Block, width: int) -> list[tuple[float | None, float | None]]:
    """Returns value and spread of every cell of a row."""
    values, spreads = row["values"], row.get("spreads", [MISSING] * width)
    if not len(values) == len(spreads) == width:
        raise ValueError(f"{where}: {len(values)} values and {len(spreads)} spreads for {width} columns")
    pairs = [
        (_number(where, value), _number(where, spread)) for value, spread in zip(values, spreads, strict=True)
    ]
    if any(value is None and spread is not None for value, spread in pairs):
        raise ValueError(f"{where}: a spread without a value")
    return pairs


def _number(where: str, text: object) -> float | None:
    if text == MISSING:
        return None
    if isinstance(text, bool) or not isinstance(text, int | float):
        raise ValueError(f"{where}: {text!r} is neither a number nor {MISSING!r}")
    return float(text)


def _cell(table: Block, row: Block, column: Block, value: float | None, spread: float | None) -> TableCell:
    where = f"table {table['id']}, {row['label']}, {column['id']}"
    reading = MetricReading.merged(table.get("reading", {}), row, column)
    reading.check(where)
    found: dict[str, Any] = {"scenarios": [], "method": "", "official_method": "", "unit": "", "options": {}}
    for layer in (table, row, column):
        options = found["options"] | layer.get("options", {})
        found |= {key: layer[key] for key in found if key in layer} | {"options": options}
    if not found["scenarios"] or (reading.source != "federation" and not found["method"]):
        raise ValueError(f"{where}: no scenario, or no method")
    found["scenarios"] = tuple(found["scenarios"])
    return TableCell(table["id"], row["label"], column["id"], value, spread, reading=reading, **found)


def read_figures(text: str) -> list[PaperFigure]:
    """Returns the figures of a TOML text."""
    document = tomllib.loads(text)
    shared = document.get("lines", {})
    found = [_figure(block, document["paper"]["id"], shared) for block in document.get("figure", [])]
    _refuse_repeated("figures", (figure.id for figure in found))
    return found


def _figure(block: Block, paper: str, shared: Mapping[str, Block]) -> PaperFigure:
    """Reads a figure; `shared` holds lists of lines that several figures name."""
    where = f"figure {block.get('id')}"
    _refuse_unknown(where, block, FIGURE_KEYS)
    kind = block["kind"]
    if kind not in FIGURE_KINDS:
        raise ValueError(f"{where}: kind {kind!r} is none of {', '.join(FIGURE_KINDS)}")
    base = shared[block["lines_of"]] if "lines_of" in block else block
    default = {"scenarios": block.get("scenarios", []), **base.get("reading", {})}
    lines = tuple(_line(where, kind, {**default, **line}) for line in base.get("line", []))
    shown = [*default["scenarios"], *(name for line in lines for name in line.scenarios)]
    others = shared[block["compared_of"]] if "compared_of" in block else {}
    vary = block.get("vary", {})
    return PaperFigure(
        id=block["id"],
        paper=paper,
        kind=kind,
        caption=block["caption"],
        notes=tuple(block.get("notes", ())),
        scenarios=tuple(dict.fromkeys(shown)),
        lines=lines,
        options=vary.get("options", {}),
        settings=vary.get("settings", {}),
        numbers=tuple(FigureNumber(**number) for number in block.get("number", [])),
        compared=_compared(where, kind, others, default["scenarios"], lines),
        tables=tuple(block.get("tables", ())),
        column=block.get("column", ""),
        mark=block.get("mark"),
    )


def _compared(
    where: str, kind: str, others: Block, scenarios: list[str], lines: tuple[FigureLine, ...]
) -> tuple[FigureLine, ...]:
    """Reads the compared methods, without those that the figure shows as lines of its own."""
    own = {line.method.partition("(")[0] for line in lines}
    default = {"scenarios": scenarios, **others.get("reading", {})}
    return tuple(
        _line(where, kind, {**default, **line})
        for line in others.get("line", [])
        if line["method"] not in own
    )


def _line(where: str, kind: str, block: Block) -> FigureLine:
    where = f"{where}, line {block.get('label')}"
    _refuse_unknown(where, block, LINE_KEYS)
    moment = {"moment": "after"} if kind == "zigzag" else {}
    reading = MetricReading.merged(moment, block)
    reading.check(where)
    if not block["scenarios"]:
        raise ValueError(f"{where}: no scenario")
    scenarios = tuple(block["scenarios"])
    return FigureLine(block["label"], scenarios, block["method"], reading, block.get("settings", {}))


def _refuse_unknown(where: str, block: Block, known: Iterable[str]) -> None:
    strange = sorted(set(block) - set(known))
    if strange:
        raise ValueError(f"{where}: unknown {', '.join(strange)}")


def _refuse_repeated(what: str, ids: Iterable[str]) -> None:
    seen = list(ids)
    twice = sorted({name for name in seen if seen.count(name) > 1})
    if twice:
        raise ValueError(f"{what}: {', '.join(twice)} stand twice")
