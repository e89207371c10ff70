"""`idiolect export`: files of models, and a sentence for what cannot be exported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import idiolect as idiolect_package

from .conftest import Call


@pytest.fixture
def folder(idiolect: Call, small: tuple[str, ...], tmp_path: Path) -> Path:
    answer = idiolect(
        "run", "--method", "fedper", *small, "--rounds", 1, "--out", tmp_path / "runs", "--json"
    )
    assert answer.code == 0
    return Path(json.loads(answer.out)["folder"])


def test_export_writes_all_clients_beside_the_run(idiolect: Call, folder: Path) -> None:
    answer = idiolect("export", folder, "--all", "--format", "weights", "--json")
    assert (answer.code, answer.err) == (0, "")
    models = json.loads(answer.out)["models"]
    assert [model["name"] for model in models] == [f"client-{client}" for client in range(4)]
    beside = folder.with_name(f"{folder.name}-models")
    assert {Path(path).parent for model in models for path in model["files"]} == {beside}
    assert len(list(beside.iterdir())) == 8


def test_export_of_what_is_not_there_is_one_sentence(idiolect: Call, folder: Path) -> None:
    out = folder.parent / "models"
    for words, sentence in (
        ((), "say which models to export"),
        (("--all", "--global"), "say which models to export"),
        (("--global",), "has no shared model"),
        (("--client", 9), "there is no client 9"),
        (("--client", 1, "--predictor", "mix"), "predictor 'mix'"),
        (("--client", 1, "--format", "pickle"), "format"),
    ):
        answer = idiolect("export", folder, *words, "--out", out)
        assert answer.code == 2 and answer.out == ""
        assert sentence in answer.err.splitlines()[-1]
        assert not list(out.glob("*"))


def test_export_prints_the_names_of_clients(idiolect: Call, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    own = {name: (x, (x[:, 0] > 0).astype(int)) for name in ("中国", "pump 1")}
    quick = {"model": "mlpnet(hidden=4)", "rounds": 1, "engine": "loop", "quiet": True}
    run = idiolect_package.run("fedper", data=own, out=tmp_path, **quick)
    answer = idiolect("export", run.folder, "--all", "--format", "weights")
    assert answer.code == 0, answer.err
    starts = [line.partition(": ")[0] for line in answer.out.splitlines()]
    assert starts == ["client pump 1", "client 中国", "Models"]


def test_export_of_a_folder_of_runs_names_them(idiolect: Call, folder: Path) -> None:
    answer = idiolect("export", folder.parent, "--all")
    assert answer.code == 2 and answer.out == ""
    assert f"holds runs; give one of them: {folder.name}" in " ".join(answer.err.split())
