"""--code: methods, parts, networks, partitions and metrics of the user's own in every command."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from idiolect import data, own_code
from idiolect.cli.settings import methods_for
from idiolect.evaluation.metrics import _KNOWN as KNOWN_METRICS
from idiolect.methods.catalogue import METHODS, PARTS
from idiolect.models.registered_models import REGISTERED
from idiolect.partition.catalogue import PARTITIONS

from .conftest import Call

CODE = '''"""A method, a network and a partition of my own."""
from dataclasses import dataclass

import numpy as np
from torch import nn

import idiolect
from idiolect.core import Part, chain
from idiolect.models import from_module
from idiolect.partition import Partition
from idiolect.parts import average


@dataclass
class Strength:
    value: float = 0.1


def gentle(strength: float = 0.1) -> Part:
    kept = Strength(strength)

    def loss(inner, view):
        return lambda params, batch, out: inner(params, batch, out) + kept.value * (out.features**2).mean()

    return Part("gentle", loss=loss)


def mine(strength: float = 0.2):
    """FedAvg with small features."""
    return chain(average(), gentle(strength), name="mine")


def turns(labels, n_clients, *, seed):
    """Rows in turn."""
    rows = np.arange(len(labels))
    return Partition(tuple(rows[k::n_clients] for k in range(n_clients)))


def build(*, in_channels, image_size, n_classes, width=4):
    inputs = in_channels * image_size[0] * image_size[1]
    return from_module(nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.ReLU()), nn.Linear(width, n_classes))


idiolect.register_part("gentle", gentle)
idiolect.register("mine", mine, label="Mine")
idiolect.register_partition("turns", turns)
idiolect.register_model("narrow", build)
idiolect.register_metric("surprise", lambda p: p.mean(p.negative_log_likelihood > 1), higher_is_better=False)
'''


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Writes the file; forgets what it registers."""
    (tmp_path / "mine.py").write_text(CODE)
    monkeypatch.setattr(own_code, "_LOADED", {})
    monkeypatch.setattr(own_code, "_GIVEN", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    held = [(catalogue, dict(catalogue)) for catalogue in (METHODS, PARTS, PARTITIONS, REGISTERED)]
    metrics = list(KNOWN_METRICS)
    yield "mine.py"
    for catalogue, before in held:
        catalogue.clear()
        catalogue.update(before)
    KNOWN_METRICS[:] = metrics


def test_run_goes_through_own_code_in_other_processes_too(idiolect: Call, small: tuple[str, ...]) -> None:
    own = ("--code", "mine.py", "--method", "mine + fine_tune", "--partition", "turns", "--model", "narrow")
    found = idiolect("run", *small, *own, "--engine", "pool", "--set", "metrics=surprise", "--out", "out")
    assert (found.code, found.err.count("Error")) == (0, 0), found.err
    (manifest,) = Path("out").glob("*/manifest.json")
    record = json.loads(manifest.read_text())
    assert [code["source"] for code in record["code"]] == ["mine.py"]
    assert len(record["code"][0]["sha256"]) == 64
    assert "surprise" in record["metrics"]


def test_config_brings_its_code(idiolect: Call, small: tuple[str, ...]) -> None:
    run = ("run", *small, "--rounds", "1", "--method", "fedavg + gentle", "--out", "out")
    first = idiolect(*run, "--code", "mine.py", "--save-config", "all.toml")
    assert first.code == 0, first.err
    assert f'code = ["{Path("mine.py").resolve()}"]' in Path("all.toml").read_text()
    del PARTS["gentle"], METHODS["mine"], PARTITIONS["turns"], REGISTERED["narrow"]
    KNOWN_METRICS.pop()
    own_code._LOADED.clear()
    second = idiolect("run", "--config", "all.toml")
    assert second.code == 0, second.err
    assert len(list(Path("out").glob("*/manifest.json"))) == 1


def test_global_option_and_dotted_path(idiolect: Call) -> None:
    try:
        found = idiolect("--code", "mine", "methods", "fedavg + gentle(strength=2)")
        assert (found.code, "- gentle(strength=2)" in found.out) == (0, True)
    finally:
        sys.modules.pop("mine", None)


def test_datasets_of_own_code_are_listed_and_compared(
    idiolect: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data.catalogue, "REGISTERED", {})
    Path("mine.py").write_text(
        "import idiolect\nidiolect.register_dataset('mine', ([1, 2], [0, 1], ['a', 'b']))\n"
    )
    listed = json.loads(idiolect("datasets", "--code", "mine.py", "--json").out)
    assert [row["samples"] for row in listed if row["name"] == "mine"] == [2]
    assert len(methods_for(["fedavg", "feddf"], {"dataset": "mine()"}, print)) == 1  # there is no public data


def test_card_of_an_own_method(idiolect: Call) -> None:
    found = idiolect("methods", "mine", "--code", "mine.py")
    assert found.code == 0
    assert "FedAvg with small features." in found.out


@pytest.mark.parametrize("command", ["run", "compare", "sweep", "methods", "reproduce", "datasets"])
def test_broken_code_is_one_sentence_in_every_command(idiolect: Call, command: str) -> None:
    Path("mine.py").write_text("\n1 / 0\n")
    found = idiolect(command, "--code", "mine.py")
    assert (found.code, found.out) == (2, "")
    assert found.err == "idiolect: mine.py, line 2: ZeroDivisionError division by zero\n"


@pytest.mark.parametrize("command", ["report", "bench"])
def test_commands_that_name_nothing_take_no_code(idiolect: Call, command: str) -> None:
    found = idiolect(command, "--code", "mine.py")
    assert found.code == 2
    assert "No such option" in found.err
