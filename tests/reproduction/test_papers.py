"""The papers' numbers: every cell is guarded by the sum of its row and of its column, typed in by hand."""

from __future__ import annotations

import math

import pytest

from idiolect.errors import UserError
from idiolect.methods import method
from idiolect.reproduction.papers import figure, figures, papers, table, tables
from idiolect.reproduction.papers.catalogue import read_figures, read_tables

SUMS = {
    "fedphp-table1": ("615 720 3900 2625 5034", "4899 353 173 5975 1494"),
    "fedphp-table2": ("490.80 268.81 413.22", "199.48 140.98 172.57 241.23 201.91 216.66"),
    "map-table1": (
        "576.0 587.9 589.4 599.5 583.9 559.6 555.0 584.9 585.7 535.5 577.4 533.6 549.7 582.4 587.4 599.8 589.3"
        " 590.6 597.7 601.5 602.4 0 0",
        "1833.7 1844.3 1441.4 1522.1 985.4 472.6 1345.8 1371.7 1352.2",
    ),
    "map-table2": (
        "641.6 641.2 649.2 633.4 640.8 641.8 617.5 645.4 641.9 586.8 585.8 608.4 587.8 609.3 533.7 513.9 622.0"
        " 649.6 664.8 524.0 632.6 664.7 662.6",
        "2064.7 2081.2 1606.5 1670.8 1037.9 540.4 1814.3 1805.4 1577.6",
    ),
    "map-table3": (
        "143.38 143.42 146.32 134.64 144.14 100.43 126.57 137.44 143.60 145.60 148.64",
        "760.52 753.66",
    ),
    "persfl-table2": (
        "1067.5 950.3 910.8 968.6 990.0 968.3 988.4 1007.1 979.6 1020.4 985.2 79.3",
        "499.9 538.0 522.3 905.3 656.8 912.6 865.4 608.4 879.4 765.3 652.6 868.1 741.4 634.9 865.1",
    ),
    "persfl-table3": (
        "1407.9 1405.9 1390.7 1400.7 1409.3 1400.6 1418.3 1411.6 1408.0 1415.4 1407.0 13.5",
        "1013.7 941.5 1062.1 1085.0 968.9 1094.0 1081.5 941.5 1093.4 1043.3 959.6 1080.6 1088.5 964.4 1070.9",
    ),
    "persfl-table4": (
        "1053.3 996.0 982.0 1017.1 1012.6 1002.7 1020.7 1028.7 1018.3 1032.0 1016.4 31.9",
        "895.3 905.3 639.4 656.8 905.5 912.6 1084.7 1085.0 970.2 968.9 1094.0 1094.0",
    ),
    "persfl-table5": (
        "42.15 55.4 42.30 69.30 55.25 59.45 59.95 34.00 43.50 56.15",
        "138.8 4.45 151.6 6.75 92.4 3.15 10.8 0.35 89.2 5.10 14.8 0.05",
    ),
    "persfl-table6": (
        "1053.6 996.1 982.0 1017.5 1012.9 1002.5 1022.3 1027.7 1018.6 1031.6 1016.7 31.7",
        "905.3 900.9 656.8 641.4 912.6 905.6 1085.0 1086.0 968.9 961.4 1094.0 1095.3",
    ),
    "persfl-table7": ("425 350 425 5000 5000", "1750 1875 2050 1900 1725 1900"),
    "superfed-table1": (
        "239.4713 138.1024 250.1535 138.8319 317.6148 126.2669 141.2042 342.7253 343.5093",
        "216.27 437.89 657.82 1.8176 90.96 221.48 408.46 3.1820",
    ),
    "superfed-table2": (
        "263.0545 81.5246 278.9232 79.9082 286.2490 73.0871 73.6317 299.0455 303.3930",
        "376.16 489.21 566.16 1.4024 42.52 114.95 145.01 3.4044",
    ),
    "superfed-table3": (
        "424.63 427.26 434.17 438.27 447.78 437.43 439.42 440.09 444.63 438.05",
        "849.10 3.4 456.93 894.40 847.70 3.0 434.39 882.81",
    ),
}
SPREADS = {
    "map-table1": (
        "5.95 5.11 9.76 4.55 15.79 11.00 10.29 5.41 5.11 11.39 5.70 8.50 18.38 5.00 7.06 7.36 4.98 7.65 12.00"
        " 5.84 9.81 0 0",
        "23.91 18.81 28.44 26.52 21.34 15.62 20.53 21.47 0",
    ),
    "map-table2": (
        "5.84 5.72 9.79 6.55 13.48 11.04 10.86 6.47 5.14 10.89 5.38 5.77 9.59 19.69 9.59 6.26 6.68 11.47 7.94"
        " 6.52 10.29 7.85 9.71",
        "25.95 22.31 31.57 33.31 25.35 22.98 20.14 20.91 0",
    ),
    "superfed-table1": (
        "35.6515 13.2651 32.8350 12.8798 15.3312 10.7830 12.7029 9.7741 14.3859",
        "0 0 92.95 0.6368 0 0 63.58 0.4417",
    ),
    "superfed-table2": (
        "19.1978 37.3688 23.0105 37.7553 20.7541 29.0075 37.9529 20.0138 19.4500",
        "0 0 189.51 0.8517 0 0 53.40 0.7490",
    ),
    "superfed-table3": (
        "12.36 12.54 9.61 14.43 7.82 13.15 10.25 12.94 11.04 28.80",
        "61.15 0 0 0 71.79 0 0 0",
    ),
}
CELLS = [
    ("map-table1", "Scaffold", "c100-vgg8bn", 52.3, 0.60),
    ("map-table1", "pFedMe", "c100-vgg11", 1.3, 0.14),
    ("map-table2", "MAP", "fa-lenet", 91.8, 1.18),
    ("map-table2", "ScaMAP", "c10-tfcnn", 81.7, 1.35),
    ("map-table2", "FedAvg", "avg", 71.3, None),
    ("map-table3", "FedPHP", "personalisation", 74.08, None),
    ("fedphp-table2", "Cifar100-100-20", "begin-mu-b", 11.82, None),
    ("persfl-table2", "User 7", "perfedavg-ds2", 58.0, None),
    ("persfl-table3", "SD", "fedavg-ds3", 1.3, None),
    ("persfl-table4", "User 9", "c10-ds2-fedavg", 56.3, None),
    ("persfl-table5", "User 5", "c10-ds3-temperature", 20.2, None),
    ("persfl-table6", "Avg", "mnist-ds3-gd", 99.5, None),
    ("persfl-table7", "pFedMe", "c10-ds2", 1000, None),
    ("superfed-table1", "SuPerFed-MM", "c10-personal", 88.90, 3.04),
    ("superfed-table1", "FedAvg-LU", "c10-top1", None, None),
    ("superfed-table2", "LG-FedAvg", "emnist-ece", 0.1168, 0.0908),
    ("superfed-table3", "L/R = 0.9", "lm-personal", 76.10, 20.60),
    ("superfed-table3", "L/R = 0.9", "mm-alpha", 0.5, None),
]


def _sums(found, kind: str) -> tuple[list[float], list[float]]:
    numbers = {(cell.row, cell.column): getattr(cell, kind) or 0.0 for cell in found.cells}
    by_row = [math.fsum(numbers[row.label, column.id] for column in found.columns) for row in found.rows]
    by_column = [math.fsum(numbers[row.label, column.id] for row in found.rows) for column in found.columns]
    return by_row, by_column


@pytest.mark.parametrize("id", SUMS)
@pytest.mark.parametrize("kind", ["value", "spread"])
def test_sums_of_rows_and_columns_are_the_papers(id, kind):
    typed = (SUMS if kind == "value" else SPREADS).get(id)
    by_row, by_column = _sums(table(id), kind)
    if typed is None:
        assert not any(by_row)
        return
    assert by_row == pytest.approx([float(text) for text in typed[0].split()], abs=1e-9)
    assert by_column == pytest.approx([float(text) for text in typed[1].split()], abs=1e-9)


@pytest.mark.parametrize(("id", "row", "column", "value", "spread"), CELLS)
def test_cell_is_the_papers(id, row, column, value, spread):
    cell = table(id).cell(row, column)
    assert (cell.value, cell.spread) == (value, spread)


def test_every_table_is_checked():
    assert {found.id for found in tables()} == set(SUMS)


def test_missing_cells_are_those_of_methods_without_a_global_model():
    assert {cell.row for cell in table("map-table1").cells if cell.value is None} == {"FedRep", "FedProto"}
    missing = {(c.row, c.column) for c in table("superfed-table2").cells if c.value is None}
    rows = ("FedAvg-LU", "FedProx-LU", "FedPer", "LG-FedAvg")
    assert missing == {(row, f"{data}-top{k}") for row in rows for data in ("emnist", "tiny") for k in (1, 5)}


def test_averages_of_map_are_those_of_its_columns():
    """A row's last number is the mean of the eight before it, to the printed digit."""
    for id in ("map-table1", "map-table2"):
        found = table(id)
        for row in found.rows:
            *eight, mean = [found.cell(row.label, column.id).value for column in found.columns]
            if mean is not None:
                assert abs(math.fsum(eight) / 8 - mean) < 0.051, (id, row.label)


def test_every_method_of_a_table_or_figure_can_be_read():
    texts = {cell.method for found in tables() for cell in found.cells if cell.method}
    texts |= {cell.official_method for found in tables() for cell in found.cells if cell.official_method}
    texts |= {line.method for found in figures() for line in found.lines}
    for text in sorted(texts):
        assert method(text).parts, text


def test_readings_name_predictor_moment_population_and_split():
    cell = table("map-table2").cell("FedAvg", "fa-lenet")
    assert cell.scenarios == ("map-fa-lenet",)
    reading = cell.reading
    assert (reading.predictor, reading.moment, reading.population) == ("after-local", "after", "selected")
    assert (reading.split, reading.rounds, reading.over) == ("test", "last", "mean")
    server = table("superfed-table1").cell("SuPerFed-MM", "c10-top1").reading
    assert (server.predictor, server.split) == ("global", "server")
    personal = table("superfed-table1").cell("SuPerFed-MM", "c10-personal").reading
    assert (personal.predictor, personal.split) == ("mix(oracle)", "test")


def test_every_figure_is_there():
    counted = {"fedper": 18, "fedphp": 8, "map": 12, "persfl": 8, "superfed": 4}
    wanted = [f"{paper}-fig{number + 1}" for paper, n in counted.items() for number in range(n)]
    assert sorted(found.id for found in figures()) == sorted(wanted)
    assert set(counted) == set(papers())
    assert figure("map-fig10").numbers[0].value == 16


def test_unknown_id_names_the_near_one():
    with pytest.raises(UserError, match="unknown table 'map-tabel2'; did you mean map-table2"):
        table("map-tabel2")
    with pytest.raises(UserError, match="did you mean map-fig1"):
        figure("map-figg1")


SMALL = """
[paper]
id = "x"
[[table]]
id = "x-table1"
caption = "c"
scenarios = ["s"]
[table.reading]
metric = "accuracy"
split = "test"
population = "all"
predictor = "global"
moment = "before"
[[table.column]]
id = "a"
label = "A"
[[table.row]]
label = "R"
method = "fedavg"
values = [1.0]
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("values = [1.0]", "values = [1.0, 2.0]", "2 values and 1 spreads for 1 columns"),
        ("values = [1.0]", 'values = ["one"]', "neither a number nor '-'"),
        ("values = [1.0]", 'values = ["-"]\nspreads = [1.0]', "a spread without a value"),
        ("values = [1.0]", "valus = [1.0]", "unknown valus"),
        ('split = "test"', 'split = "tset"', "split is 'tset'"),
        ('moment = "before"', 'moment = "later"', "moment is 'later'"),
        ('predictor = "global"', "", "no predictor"),
        ('method = "fedavg"', "", "no scenario, or no method"),
        ('label = "R"', 'label = "R"\nover = "client"', "goes with a client"),
        ('label = "R"', 'label = "R"\nrounds = "first"', "rounds 'first' is no window"),
        ('caption = "c"', 'caption = "c"\nspread = "seeds"', "spread is 'seeds'"),
    ],
)
def test_table_that_is_not_as_it_should_be_is_refused_on_loading(old, new, problem):
    assert old in SMALL
    assert len(read_tables(SMALL)[0].cells) == 1
    with pytest.raises(ValueError, match=problem):
        read_tables(SMALL.replace(old, new))


def test_figure_of_unknown_kind_is_refused_on_loading():
    text = '[paper]\nid = "x"\n[[figure]]\nid = "x-fig1"\ncaption = "c"\nkind = "pie"\n'
    with pytest.raises(ValueError, match="kind 'pie'"):
        read_figures(text)
