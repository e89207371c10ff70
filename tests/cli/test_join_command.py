"""`idiolect join`: a table before and after, models beside the run, and one sentence for data that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from .conftest import Call


def write_table(path: Path, sites: str, seed: int) -> Path:
    random = np.random.default_rng(seed)
    rows = 25 * len(sites)
    columns = {
        "site": np.repeat(list(sites), 25),
        "a": random.normal(size=rows),
        "b": random.normal(size=rows),
    }
    table = pd.DataFrame(columns)
    table["label"] = np.where(table["a"] > table["b"], "more", "less")
    table.to_csv(path, index=False)
    return path


def test_join_prints_before_and_after(idiolect: Call, tmp_path: Path) -> None:
    data = write_table(tmp_path / "old.csv", "abc", 0)
    quick = (
        "--rounds",
        1,
        "--engine",
        "loop",
        "--model",
        "mlpnet(hidden=8)",
        "--out",
        tmp_path / "runs",
        "--json",
    )
    answer = idiolect("run", "--method", "fedper", "--data", data, "--client-column", "site", *quick)
    assert answer.code == 0, answer.err
    run = json.loads(answer.out)["folder"]
    late = write_table(tmp_path / "late.csv", "xy", 1)
    rows = ("--data", late, "--steps", 3)
    answer = idiolect("join", run, *rows, "--format", "weights", "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert [line["client"] for line in found["clients"]] == ["x", "y"]
    assert {"before", "after"} <= set(found["clients"][0])
    assert (Path(found["folder"]) / "x.safetensors").is_file()
    answer = idiolect("join", run, *rows, "--format", "weights")
    assert answer.code == 0 and "after" in answer.out
    other = tmp_path / "other.csv"
    other.write_text("who,size,lab\nx,1,more\nx,2,less\n")
    for words, sentence in (
        (
            ("--data", other, "--client-column", "who", "--label-column", "lab"),
            "has no column 'a' (2 of 2 are",
        ),
        ((), "--data PATH"),
        (("--data", late, "--client-column", "town"), "town"),
        ((*rows, "--epochs", 2), "give one of them"),
    ):
        answer = idiolect("join", run, *words)
        assert answer.code == 2 and sentence in answer.err.splitlines()[-1]


def test_help_of_join_is_about_new_clients(idiolect: Call) -> None:
    shown = " ".join(idiolect("join", "--help").out.replace("│", " ").split())
    assert "Folder of a finished run; a comparison's folder holds one for each method." in shown
    assert "Rows of the new clients" in shown and "--client-column" in shown
    assert "--repartition" not in shown and "--dataset" not in shown
