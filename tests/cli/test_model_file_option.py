"""``--model-file``: a network of a file of the user's, and what is refused."""

from __future__ import annotations

import hashlib
import json

import pytest

from idiolect.errors import UserError
from idiolect.experiments.finished.finished_run import open_run
from idiolect.models.registered_models import REGISTERED

DATA = "synthetic(n_clients=4, samples_per_client=20, n_features=8, n_classes=3)"
COMMON = ("--dataset", DATA, "--partition", "by_id", "--clients", "4", "--rounds", "1", "--engine", "loop")
TEXT = """
from torch import nn

def small(input_shape, outputs, width=4):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(width), nn.ReLU(), nn.Linear(width, outputs))
"""


@pytest.fixture(autouse=True)
def _forget():
    before = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


def test_network_of_a_file_runs_and_its_file_is_recorded(idiolect, tmp_path):
    file = tmp_path / "net.py"
    file.write_text(TEXT)
    given = (*COMMON, "--model-file", f"{file}:small(width=3)", "--out", tmp_path / "runs", "--json")
    answer = idiolect("run", "--method", "fedavg", *given, "--save-config", tmp_path / "again.toml")
    assert answer.code == 0, answer.err
    (folder,) = (p for p in (tmp_path / "runs").iterdir() if p.name.startswith("fedavg"))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["model"] == "small(width=3)" and manifest["parameters"] == 8 * 3 + 3 + 3 * 3 + 3
    assert manifest["model_file"] == {
        "path": str(file),
        "sha256": hashlib.sha256(TEXT.encode()).hexdigest(),
        "builder": "small",
    }
    REGISTERED.clear()
    assert not next(iter(open_run(folder).models().values())).training
    file.write_text(TEXT + "# changed")
    REGISTERED.clear()
    with pytest.raises(UserError, match=r"net\.py is not the one that was used any more"):
        next(iter(open_run(folder).models().values()))
    assert f'model_file = "{file}:small(width=3)"' in (tmp_path / "again.toml").read_text()


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_network_of_a_file_and_one_by_name_are_refused_together(command, idiolect, refused, tmp_path):
    words = {"run": ["--method", "fedavg"], "compare": ["--methods", "fedavg"]}.get(command)
    words = words or ["--methods", "fedavg", "--vary", "momentum=0.0,0.9"]
    answer = idiolect(
        command, *words, *COMMON, "--model", "mlpnet", "--model-file", f"{tmp_path}/net.py:small"
    )
    refused(answer, "--model-file and --model both name a network; give one of them")


def test_file_that_is_not_there_is_refused(idiolect, refused, tmp_path):
    answer = idiolect("run", "--method", "fedavg", *COMMON, "--model-file", f"{tmp_path}/net.py:small")
    refused(answer, "net.py cannot be read: No such file or directory")
