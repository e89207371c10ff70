"""Options that describe data of the user's own: what is refused, how they are read, and which methods serve them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from idiolect.cli import run_and_compare, settings
from idiolect.data import Dataset
from idiolect.errors import UserError
from idiolect.testing import tiny_dataset

COMMANDS = {
    "run": ["--method", "fedavg"],
    "compare": ["--methods", "fedavg"],
    "sweep": ["--methods", "fedavg", "--vary", "momentum=0.0,0.9"],
}
REFUSED: dict[str, tuple[list[str], str]] = {
    "no-data": (
        ["--client-column", "site"],
        "--client-column describes data of your own; give --data PATH too",
    ),
    "no-data-flag": (["--repartition"], "--repartition describes data of your own; give --data PATH too"),
    "dataset-too": (["--data", "a.csv", "--dataset", "mnist"], "--data and --dataset both say"),
    "two-splits": (
        ["--data", "a.csv", "--split-column", "part", "--split-by", "time:day"],
        "--split-column and --split-by both say",
    ),
    "split-kind": (
        ["--data", "a.csv", "--split-by", "day"],
        "must be time:COLUMN or group:COLUMN; got 'day'",
    ),
    "split-name": (["--data", "a.csv", "--split-by", "group:"], "must be time:COLUMN or group:COLUMN"),
    "empty-label": (
        ["--data", "a.csv", "--label-column", "a,,b"],
        "--label-column has an empty name in 'a,,b'",
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("case", REFUSED)
def test_options_that_cannot_work_are_refused(command, case, idiolect, refused, tmp_path):
    words, sentence = REFUSED[case]
    refused(idiolect(command, *COMMANDS[command], *words, "--out", tmp_path / "out"), sentence)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["--label-column", "price"], {"label_column": "price"}),
        (["--label-column", "a, b", "--label-column", "c"], {"label_column": ("a", "b", "c")}),
        (
            ["--client-column", "site", "--split-by", "time:day"],
            {"client_column": "site", "split_by": "time:day"},
        ),
        (["--split-column", "part", "--task", "regression"], {"split_column": "part", "task": "regression"}),
        (["--fill", "mean", "--repartition"], {"fill": "mean", "repartition": True}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_data_are_read_once_by_the_same_names(words, expected, idiolect, monkeypatch):
    read: list[dict[str, Any]] = []
    received: dict[str, Any] = {}

    def to_dataset(**keywords: Any) -> Dataset:
        read.append(keywords)
        return tiny_dataset()

    def run(method: str, **keywords: Any) -> None:
        received.update(keywords)
        raise UserError("enough")

    monkeypatch.setattr(settings, "to_dataset", to_dataset)
    monkeypatch.setattr(run_and_compare, "run", run)
    idiolect("run", "--method", "fedavg", "--data", "a.csv", *words)
    repartition = expected.pop("repartition", None)
    assert read == [{"data": Path("a.csv"), **expected}]
    assert isinstance(received["data"], Dataset) and received.get("repartition") is repartition


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    frame = pd.DataFrame(rows, columns=["size", "age", "price"]).assign(town=np.repeat(["a", "b"], 20))
    frame.to_csv(tmp_path / "prices.csv", index=False)
    return tmp_path / "prices.csv"


def test_methods_that_nobody_named_and_that_need_classes_are_left_out_of_a_regression(
    prices, idiolect, monkeypatch, tmp_path
):
    compared: list[list[str]] = []

    def compare(names: list[str], **keywords: Any) -> None:
        compared.append(names)
        raise UserError("enough")

    monkeypatch.setattr(run_and_compare, "compare", compare)
    words = ["--data", str(prices), "--client-column", "town", "--label-column", "price"]
    answer = idiolect("run", *words)
    assert compared[0] == ["local", "fedavg", "fedavg_lu", "fedper", "fedphp", "superfed_mm"]
    assert "left out, because they need classes, which regression has not: fedrs, map" in answer.err
    idiolect("compare", *words)
    assert "ditto" in compared[1] and not {"fedrs", "feddf"} & {*compared[1]}


def test_a_quick_run_keeps_the_clients_that_the_data_name(prices, idiolect, tmp_path):
    words = [
        "--data",
        str(prices),
        "--client-column",
        "town",
        "--label-column",
        "price",
        "--quick",
        "--engine",
        "loop",
    ]
    answer = idiolect("run", "--method", "fedavg", *words, "--json", "--out", tmp_path / "out")
    assert json.loads(answer.out)["methods"][0]["clients"] == 2
