"""Every cell of a report follows from the files of its runs, computed a second time without the package."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from idiolect.records import RoundBuffer, RowBuffer, RowKind, RunWriter, read_runs
from idiolect.reports import write_report

SCRIPT = Path(__file__).parents[1] / "recompute_from_parquet.py"
METRICS = {"accuracy": {"higher_is_better": True, "low": 0.0, "high": 1.0, "unit": "share"}}
METHODS = {"Local": "companion", "FedAvg": "global", "PersFL": "companion"}
CLIENTS, NEWCOMERS, IDLE = 12, 4, (3, 7)


def write_record(folder: Path, label: str, seed: int, data_seed: int, partition: str) -> None:
    """Writes a run of invented numbers: two evaluations with test data that shrink, newcomers, two idle clients.

    PersFL has a value at the end, on test data that shrank once more.
    """
    random = np.random.default_rng([list(METHODS).index(label), seed, data_seed, len(partition)])
    people = 0.5 + 0.2 * np.random.default_rng([data_seed, 9]).random(CLIENTS)
    headline, rows, rounds = METHODS[label], RowBuffer(), RoundBuffer()
    samples = np.random.default_rng([data_seed, 8]).integers(5, 60, CLIENTS + NEWCOMERS)
    for number in (2, 4):
        level = (
            people + 0.05 * list(METHODS).index(label) + 0.05 * random.standard_normal(CLIENTS) + number / 100
        )
        for split, shift in (("test", 0.0), ("valid", 0.01)):
            kind = RowKind(split, headline, "before", "all", "accuracy")
            rows.extend(number, range(CLIENTS), kind, level + shift, samples[:CLIENTS] // number + 1)
        if label != "Local":
            rows.add(number, -1, RowKind("server", "global", "before", "all", "accuracy"), level.mean(), 100)
        rounds.add(number, 1.0, 5, 1000 * number, 10 * number, 0.5)
    if label == "PersFL":
        kind = RowKind("test", headline, "end", "all", "accuracy")
        rows.extend(4, range(CLIENTS), kind, level + 0.1, samples[:CLIENTS] % 7 + 1)
    for moment, shift in (("before", 0.0), ("after", 0.2)):
        kind = RowKind("test", headline, moment, "new", "accuracy")
        values = 0.4 + shift + 0.1 * random.random(NEWCOMERS)
        rows.extend(4, range(CLIENTS, CLIENTS + NEWCOMERS), kind, values, samples[CLIENTS:])
    facts = {
        "label": label,
        "method": label.lower(),
        "headline": headline,
        "seed": seed,
        "data_seed": data_seed,
        "dataset": "digits",
        "partition": partition,
        "model": "mlp",
        "metrics": METRICS,
        "seconds": 12.5 + seed,
        "hardware": {"cores": 2 if partition == "iid" else 2 + seed},
        "never_selected": len(IDLE),
        "notes": [],
        "spec": {"partition": partition, "newcomers": NEWCOMERS, "method": label},
    }
    writer = RunWriter(folder, f"{label.lower()}-{partition}-d{data_seed}-s{seed}", facts)
    writer.finish(rounds.table(), rows.table(), final={"costs": costs()})


def costs() -> pa.Table:
    trained = [0 if client in IDLE else 2 for client in range(CLIENTS)]
    zeros = [0] * CLIENTS
    return pa.table(
        {
            "client": pa.array(range(CLIENTS), pa.int32()),
            "population": ["all"] * CLIENTS,
            "rounds": pa.array(trained, pa.int32()),
            "steps": zeros,
            "flops": [0.0] * CLIENTS,
            "bytes_down": zeros,
            "bytes_up": zeros,
        }
    )


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two scenes, one with partitions that the seed redraws and one with a fixed partition, and their report."""
    runs, report = tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("report")
    for label in METHODS:
        for seed in range(3):
            write_record(runs, label, seed, seed, "iid")
            write_record(runs, label, seed, 5, "natural")
    write_report(read_runs(runs), report, ["csv", "md", "tex"], special=True)
    return runs, report


@pytest.fixture(scope="module")
def script() -> ModuleType:
    found = importlib.util.spec_from_file_location("recompute_from_parquet", SCRIPT)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_cell_follows_from_the_records(places: tuple[Path, Path], script: ModuleType) -> None:
    runs, report = places
    assert {name.stem for name in report.glob("*.csv")} >= {
        "table",
        "intervals",
        "pairs",
        "users",
        "newcomers",
    }
    assert script.differences(runs, report) == []
    tables = script.recompute(runs)
    assert {name: len(table) for name, table in tables.items()} == {
        "table": 6,
        "intervals": 6,
        "newcomers": 6,
        "pairs": 6,
        "users": (3 * CLIENTS + 2) + (CLIENTS + 2),
    }
    assert set(tables["table"]["design"]) == {"redrawn", "fixed"}


def test_cells_that_are_off_are_named(places: tuple[Path, Path], script: ModuleType, tmp_path: Path) -> None:
    runs, report = places
    for path in report.glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    changed = {
        "table": "worst_tenth",
        "intervals": "low",
        "pairs": "p_holm",
        "users": "FedAvg",
        "newcomers": "joined",
    }
    for file, column in changed.items():
        table = pd.read_csv(tmp_path / f"{file}.csv")
        table.loc[1, column] *= 1.001
        table.to_csv(tmp_path / f"{file}.csv", index=False)
    problems = script.differences(runs, tmp_path)
    assert {problem.partition(":")[0] for problem in problems} == {
        f"{file}.csv, row 2, {column}" for file, column in changed.items()
    }


def test_the_script_uses_nothing_of_the_package(script: ModuleType) -> None:
    assert "import idiolect" not in inspect.getsource(script) and "from idiolect" not in inspect.getsource(
        script
    )


def test_text_tables_name_scene_reading_and_idle_clients(places: tuple[Path, Path]) -> None:
    _, report = places
    text = (report / "table.md").read_text()
    assert "#### iid (last evaluation)" in text and "#### natural (last evaluation)" in text
    assert "| Never trained |" in text and "| 2 † |" in text
    assert "†: clients that never trained count in the mean and not in the worst tenth" in text
    latex = (report / "table.tex").read_text()
    assert r"2 $\dagger$" in latex and "% iid (last evaluation)" in latex
    joined = (report / "newcomers.md").read_text()
    assert joined.count("| PersFL | companion | 4 | 3 |") == 2 and "n - 1" in joined
    assert (report / "newcomers.tex").read_text().count(r"\begin{tabular}") == 2
