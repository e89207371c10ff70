"""``idiolect reproduce`` as a user calls it."""

from __future__ import annotations

import json

import pytest

from idiolect.cli import reproduce
from idiolect.reproduction.compared_number import ComparedNumber
from idiolect.reproduction.listing import ListedReproduction


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (["map-tabel1"], "unknown table or figure 'map-tabel1'; did you mean map-table1"),
        (["map-table1", "--column", "fa-lent"], "unknown column 'fa-lent'; did you mean fa-lenet"),
        (["map-table1", "--methods", "fedpre"], "unknown method 'fedpre'"),
        (["fedper-fig2", "--preset", "official"], "has no preset 'official'; known: paper"),
    ],
)
def test_mistake_is_refused_in_one_sentence(words, piece, idiolect, refused, tmp_path):
    refused(idiolect("reproduce", *words, "--out", tmp_path / "out"), piece)
    assert not (tmp_path / "out").exists()


def test_table_without_its_data_says_how_to_get_them_and_ends_with_2(idiolect, tmp_path):
    answer = idiolect("reproduce", "map-table2", "--column", "c10-vgg8", "--out", tmp_path / "out")
    assert answer.code == 2
    assert "idiolect datasets get cifar10" in answer.out and "not run" in answer.out
    assert "77.50 ± 0.82" in answer.out
    assert (tmp_path / "out/map-table2/map-table2.tex").exists()


def test_facts_beside_the_papers(idiolect, tmp_path):
    answer = idiolect("reproduce", "persfl-table7", "--json", "--out", tmp_path / "out")
    assert answer.code == 0 and answer.err == ""
    found = json.loads(answer.out)
    cell = next(c for c in found["cells"] if (c["row"], c["column"]) == ("pFedMe", "c10-ds2"))
    assert (cell["value"], cell["paper"], cell["difference"]) == (1000.0, 1000.0, 0.0)


def test_drawing_needs_nothing(idiolect, tmp_path):
    answer = idiolect("reproduce", "map-fig1", "--out", tmp_path / "out")
    assert answer.code == 0 and "nothing is run for map-fig1" in answer.out


def test_list_is_a_table_or_a_document_and_an_empty_call_names_it(idiolect, refused, monkeypatch):
    refused(idiolect("reproduce"), "idiolect reproduce --list shows all")
    one = ListedReproduction("a-fig1", "a", "Curves", ("mnist", "cifar10"), ("vgg8",), 12, 34000, ("mnist",))
    monkeypatch.setattr("idiolect.cli.reproduce.list_reproductions", lambda data_dir: [one])
    (found,) = json.loads(idiolect("reproduce", "--list", "--json").out)
    assert found["datasets"] == ["mnist", "cifar10"] and (found["runs"], found["missing"]) == (12, ["mnist"])
    answer = idiolect("reproduce", "--list")
    assert answer.code == 0 and all(word in answer.out for word in ("a-fig1", "Curves", "34,000", "missing"))


@pytest.mark.parametrize(
    ("value", "unit", "printed"),
    [(87.2099, "%", "+0.91"), (86.0, "%", "-0.30"), (86.3, "%", "+0.00"), (86.31234, "", "+0.01234")],
)
def test_difference_has_the_digits_of_its_unit(value, unit, printed):
    one = ComparedNumber("FedAvg", "fa-lenet", value=value, paper=86.3, unit=unit, seeds=1)
    assert reproduce._cells(one, quick=False)[-2] == printed
