"""Exported models predict in a process that has PyTorch alone, exactly what the run recorded."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import idiolect
from idiolect.experiments import Experiment, FinishedRun
from idiolect.experiments.recorded_setting import HERE
from idiolect.experiments.setting import prepare, read_dataset
from idiolect.methods import names
from idiolect.records import Run

PREDICTS = """
import json, sys, torch
wanted, found = json.loads(sys.argv[1]), {}
for rows, program in wanted.items():
    x, y = torch.load(rows)
    model = torch.export.load(program).module()
    for size in (1, 7, len(y)):
        logits = torch.cat([model(some) for some in torch.split(x, size)])
        found.setdefault(rows, []).append((logits.argmax(1) == y).double().mean().item())
assert not any(name.startswith("idiolect") for name in sys.modules)
print(json.dumps(found))
"""


@pytest.fixture(autouse=True)
def _quiet_tracing() -> Iterator[None]:
    """Keeps PyTorch's trace of an export, thousands of records, out of pytest's log."""
    logger = logging.getLogger("torch.__trace")
    before, logger.propagate = logger.propagate, False
    yield
    logger.propagate = before


@pytest.fixture
def images(tiny: Experiment) -> Experiment:
    """Raw images, which a model scales and normalises."""
    few = replace(tiny, dataset="fashion-mnist-12k", partition="iid", clients=20, rounds=1)
    return replace(few, participation_rate=0.1, local_epochs=0.1, learning_rate=0.1)


def raw_test_rows(run: FinishedRun, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows as they are in the dataset, before any preprocessing, and their labels."""
    experiment = Experiment(**run.manifest["spec"])
    rows = prepare(experiment, HERE).federation.clients[client].test
    dataset = read_dataset(experiment.dataset)
    return torch.from_numpy(dataset.train_x[rows]), torch.from_numpy(dataset.train_y[rows])


def recorded_accuracy(run: Run, client: int, predictor: str) -> float:
    """A client's last accuracy on its test rows."""
    wanted = {
        "client": client,
        "predictor": predictor,
        "split": "test",
        "population": "all",
        "metric": "accuracy",
    }
    rows = run.rows
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    return float(rows["value"].iloc[-1])


def check_programs(methods: tuple[str, ...], experiment: Experiment, folder: Path) -> None:
    """Runs methods, exports a client of each and compares what the programs predict elsewhere with the record."""
    programs, recorded = {}, {}
    for place, method in enumerate(methods):
        run = idiolect.run(replace(experiment, method=method), out=folder, engine="loop")
        client = int(run.rows[run.rows["population"] == "selected"]["client"].iloc[-1])  # one that trained
        (exported,) = run.export(client, out=folder / f"models-{place}", formats=["program"])
        assert not exported.notes
        rows = folder / f"rows-{place}.pt"
        torch.save(raw_test_rows(run, client), rows)
        programs[str(rows)] = str(exported.files[0])
        recorded[str(rows)] = [recorded_accuracy(run, client, run.manifest["headline"])] * 3
    call = [sys.executable, "-I", "-c", PREDICTS, json.dumps(programs)]
    found = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)
    assert found == recorded


def test_programs_predict_with_torch_alone_what_the_run_recorded(images: Experiment, tmp_path: Path) -> None:
    check_programs(("fedrep", "flda"), images, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlpnet(hidden=8)", "lenet_map", "vgg8_bn"])
def test_programs_of_all_methods_predict_what_the_run_recorded(
    images: Experiment, tmp_path: Path, model: str
) -> None:
    check_programs(tuple(names()), replace(images, model=model), tmp_path)
