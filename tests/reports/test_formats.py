"""Pictures in several formats, and the table for LaTeX."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from idiolect.errors import UserError
from idiolect.records import Run
from idiolect.reports import latex_table, summarise, write_report

SIGNS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.slow
def test_every_picture_comes_in_every_format_named(comparison: list[Run], tmp_path: Path) -> None:
    written = write_report(comparison[:6], tmp_path / "a", ["svg", "pdf", "png", "tex"])
    pictures = {"curves", "clients", "scatter", "partition"}
    assert {p.name for p in written} == {n + kind for n in pictures for kind in SIGNS} | {"table.tex"}
    for path in written:
        assert path.read_bytes().startswith(SIGNS.get(path.suffix, b"% digits"))
    again = write_report(comparison[:6], tmp_path / "b", ["svg", "pdf", "png", "tex"])
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


def test_unknown_format_is_refused_by_name(comparison: list[Run], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="docx"):
        write_report(comparison[:3], tmp_path, ["docx"])
    assert not list(tmp_path.glob("*.*x"))


def test_names_are_neither_formulas_nor_html(make_run, tmp_path: Path) -> None:
    names = ("=HYPERLINK(1)", "<img src=x onerror=alert(1)>")
    runs = [make_run(name, personal={(1, "after"): [0.4, 0.8]}) for name in names]
    for path in write_report(runs, tmp_path, ["csv", "md"], special=True):
        text = path.read_text()
        if path.suffix == ".md":
            assert "<img" not in text
        else:
            cells = [cell for line in csv.reader(text.splitlines()) for cell in line]
            assert not [cell for cell in cells if cell.startswith(("=", "@", "+"))]
    assert "&lt;img" in (tmp_path / "table.md").read_text()
    assert "'=HYPERLINK(1)" in (tmp_path / "table.csv").read_text()


def test_latex_escapes_names(make_run) -> None:
    runs = [
        make_run(r"a_b & 50 % \x{y}~^#$<>", personal={(1, "after"): [0.4, 0.8]}),
        make_run("B", personal={(1, "after"): [0.5, 0.9]}),
    ]
    second, first = latex_table(summarise(runs)).splitlines()[7:9]  # the best first
    name = r"a\_b \& 50 \% \textbackslash{}x\{y\}\textasciitilde{}\textasciicircum{}\#\$\textless{}\textgreater{}"
    assert first.startswith(name + " & - & 60.0 &") and first.endswith(r"\\")
    assert second.startswith(r"B & - & 70.0 & companion &")


def test_latex_shows_spread_over_seeds(make_run) -> None:
    runs = [make_run("A", seed, {(1, "after"): [0.4 + 0.2 * seed]}) for seed in (0, 1)]
    assert r"50.0 $\pm$ 14.1" in latex_table(summarise(runs))
