"""From TOML to figures; what is not as it should be is refused on loading, by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from idiolect.reproduction.papers.checks import refuse_repeated, refuse_unknown
from idiolect.reproduction.papers.figure import KINDS, Figure, Line, Number
from idiolect.reproduction.papers.reading import KEYS, Reading

__all__ = ["read_figures"]

Block = Mapping[str, Any]

WHAT = {"id", "kind", "caption", "notes", "scenarios", "number"}
IN_FIGURE = WHAT | {"reading", "vary", "line", "lines_of", "compared_of", "tables", "column", "mark"}
IN_LINE = KEYS | {"label", "scenarios", "method", "settings"}


def read_figures(text: str) -> list[Figure]:
    document = tomllib.loads(text)
    shared = document.get("lines", {})
    found = [_figure(block, document["paper"]["id"], shared) for block in document.get("figure", [])]
    refuse_repeated("figures", (figure.id for figure in found))
    return found


def _figure(block: Block, paper: str, shared: Mapping[str, Block]) -> Figure:
    where = f"figure {block.get('id')}"
    refuse_unknown(where, block, IN_FIGURE)
    if block["kind"] not in KINDS:
        raise ValueError(f"{where}: kind {block['kind']!r} is none of {', '.join(KINDS)}")
    base = shared[block["lines_of"]] if "lines_of" in block else block
    default = {"scenarios": block.get("scenarios", []), **base.get("reading", {})}
    vary = block.get("vary", {})
    lines = tuple(_line(where, block["kind"], {**default, **line}) for line in base.get("line", []))
    own = {line.method.partition("(")[0] for line in lines}
    others = shared[block["compared_of"]] if "compared_of" in block else {}
    read_as = {"scenarios": default["scenarios"], **others.get("reading", {})}
    compared = tuple(
        _line(where, block["kind"], {**read_as, **line})
        for line in others.get("line", [])
        if line["method"] not in own
    )
    return Figure(
        id=block["id"],
        paper=paper,
        kind=block["kind"],
        caption=block["caption"],
        notes=tuple(block.get("notes", ())),
        scenarios=tuple(
            dict.fromkeys([*default["scenarios"], *(n for line in lines for n in line.scenarios)])
        ),
        lines=lines,
        options=vary.get("options", {}),
        settings=vary.get("settings", {}),
        numbers=tuple(Number(**number) for number in block.get("number", [])),
        compared=compared,
        tables=tuple(block.get("tables", ())),
        column=block.get("column", ""),
        mark=block.get("mark"),
    )


def _line(where: str, kind: str, block: Block) -> Line:
    where = f"{where}, line {block.get('label')}"
    refuse_unknown(where, block, IN_LINE)
    moment = {"moment": "after"} if kind == "zigzag" else {}
    reading = Reading.merged(moment, block)
    reading.check(where)
    if not block["scenarios"]:
        raise ValueError(f"{where}: no scenario")
    return Line(
        block["label"], tuple(block["scenarios"]), block["method"], reading, block.get("settings", {})
    )
