"""Options of a run mean the same in every command that makes runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

from idiolect.cli.commands import app
from idiolect.cli.options import RUN_OPTIONS
from idiolect.experiments import Execution
from idiolect.reproduction.request import ReproductionRequest

COMMANDS = {
    "run": ["--method", "fedavg"],
    "compare": ["--methods", "fedavg"],
    "sweep": ["--methods", "fedavg", "--vary", "momentum=0.0,0.9"],
    "reproduce": ["map-table1"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_has_every_option_of_a_run_with_the_default_of_the_execution(name):
    shown = {option.name: option for option in get_command(app).commands[name].params}
    for field in fields(Execution):
        if field.name in RUN_OPTIONS:
            default = shown[field.name].default
            assert (tuple(default) if field.name == "log" else default) == field.default
    assert {one.name for one in fields(Execution)} - RUN_OPTIONS.keys() == {
        "checkpoint_every",
        "notes",
        "watcher",
    }


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--engine", "loop", "--workers", "2"], "workers are for the engines pool and ray"),
        (["--engine", "loop", "--gpus-per-worker", "1"], "are for --engine ray; the engine here is loop"),
        (["--store", "tape"], "store must be one of auto, device, host, disk; got 'tape'"),
        (["--log", "comet"], "log must be one of tensorboard, mlflow, wandb; got 'comet'"),
        (["--precision", "float16"], "precision must be one of float32, float64, tf32, bf16; got 'float16'"),
    ],
    ids=lambda value: value[-2] if isinstance(value, list) else "",
)
def test_refused_option_is_refused_alike(name, words, sentence, idiolect, refused: Callable, tmp_path: Path):
    refused(idiolect(name, *COMMANDS[name], *words, "--out", tmp_path / "out"), sentence)
    assert not (tmp_path / "out").exists()


def test_sweep_takes_precision_store_and_resume(idiolect, small, tmp_path):
    words = ["--precision", "float64", "--store", "disk", "--resume", "--out", tmp_path, "--json"]
    answer = idiolect("sweep", *COMMANDS["sweep"], *small, *words)
    assert answer.code == 0, answer.err
    manifests = [json.loads(path.read_text()) for path in tmp_path.glob("fedavg-*/manifest.json")]
    assert [one["spec"]["precision"] for one in manifests] == ["float64", "float64"]
    assert {one["private_state"]["store"] for one in manifests} == {"disk"}


def test_reproduction_in_another_precision_says_so(idiolect, tmp_path):
    answer = idiolect("reproduce", "persfl-table7", "--precision", "float64", "--json", "--out", tmp_path)
    assert answer.code == 0, answer.err
    assert "all runs compute in float64" in json.loads(answer.out)["notes"]
    experiment, _ = ReproductionRequest(precision="float64").experiment("map-fa-lenet", "fedavg", 0)
    assert experiment.precision == "float64"


def test_figure_of_single_networks_has_no_precision(idiolect, refused: Callable):
    refused(idiolect("reproduce", "map-fig5", "--precision", "bf16"), "train in float32; leave precision out")
    refused(idiolect("reproduce", "map-fig5", "--log", "tensorboard"), "is not logged; leave log out")


@pytest.mark.parametrize("key", ["engine", "store_cache", "watcher", "execution"])
def test_set_is_for_settings_alone(key, idiolect, refused: Callable, small):
    sentence = f"use --{key.replace('_', '-')}" if key in RUN_OPTIONS else f"there is no setting '{key}'"
    refused(idiolect("run", "--method", "fedavg", *small, "--set", f"{key}=1"), sentence)
