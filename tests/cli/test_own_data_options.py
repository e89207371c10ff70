"""Options that describe data of the user's own: what is refused, and what the Python interface receives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from idiolect.cli import run_and_compare
from idiolect.errors import UserError

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
def test_python_receives_the_same_names(words, expected, idiolect, monkeypatch):
    received: dict[str, Any] = {}

    def run(method: str, **keywords: Any) -> None:
        received.update(keywords)
        raise UserError("enough")

    monkeypatch.setattr(run_and_compare, "run", run)
    idiolect("run", "--method", "fedavg", "--data", "a.csv", *words)
    del received["execution"]
    assert received == {"data": Path("a.csv"), **expected}
