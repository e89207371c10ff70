"""A model of a file: it is registered under its builder's name, and every mistake is one sentence."""

from __future__ import annotations

import hashlib

import pytest
from torch import nn

from idiolect.errors import UserError
from idiolect.models import build, file_of_model, load_model_file, name_of_model
from idiolect.models.registered_models import REGISTERED

TEXT = """
import torch
from torch import nn

class SmallNet(nn.Module):
    def __init__(self, outputs, width=4):
        super().__init__()
        self.hidden, self.head = nn.Linear(5, width), nn.Linear(width, outputs)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(x)))

def build_net(outputs):
    return SmallNet(outputs)

ready = SmallNet(3)
"""


@pytest.fixture(autouse=True)
def _forget():
    before = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(TEXT)
    return path


def test_function_or_class_of_a_file_becomes_a_model(file):
    assert load_model_file(f"{file}:build_net") == "build_net"
    assert build("build_net", (5,), 3).linear_head
    assert load_model_file(f"{file}:SmallNet(width=7)") == "small_net(width=7)"
    net = build("small_net(width=7)", (5,), 2)
    assert [tuple(p.shape) for p in net.parameters()] == [(7, 5), (7,), (2, 7), (2,)]
    of_file = file_of_model("small_net(width=7)")
    assert of_file == (str(file), hashlib.sha256(TEXT.encode()).hexdigest(), "SmallNet")
    assert file_of_model("lenet5") is None


def test_file_runs_once_until_its_text_changes(file):
    load_model_file(f"{file}:build_net")
    first = REGISTERED["build_net"]
    load_model_file(f"{file}:build_net")
    assert REGISTERED["build_net"] is first
    file.write_text(TEXT + "\n# changed\n")
    load_model_file(f"{file}:build_net")
    assert REGISTERED["build_net"] is not first


def test_module_of_a_file_keeps_its_values(file):
    name = load_model_file(f"{file}:ready")
    one, other = (build(name, (5,), 3, seed=seed).state_dict() for seed in (0, 1))
    assert name.startswith("small_net_") and all((value == other[key]).all() for key, value in one.items())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{file}", "names no builder; write path.py:builder"),
        ("{folder}/none.py:build_net", "none.py cannot be read: No such file"),
        ("{folder}:build_net", "cannot be read: Is a directory"),
        ("{file}:other", "has no builder 'other'; it defines SmallNet, build_net"),
        ("{file}:nn", "model must be a name, a torch module or a function that builds one"),
        ("{folder}/broken.py:build_net", "broken.py, line 1: ZeroDivisionError division by zero"),
        ("{folder}/syntax.py:build_net", "syntax.py, line 1: SyntaxError"),
        ("{folder}/ends.py:build_net", "ends.py, line 1: SystemExit 3"),
    ],
)
def test_mistake_is_refused_in_a_sentence(file, text, sentence):
    folder = file.parent
    (folder / "broken.py").write_text("1 / 0")
    (folder / "syntax.py").write_text("def build_net(:")
    (folder / "ends.py").write_text("raise SystemExit(3)")
    before = dict(REGISTERED)
    with pytest.raises(UserError, match=sentence):
        load_model_file(text.format(file=file, folder=folder))
    assert before == REGISTERED


def test_names_of_models_are_made_of_what_is_given():
    assert name_of_model("lenet5") == "lenet5"

    def mlpnet(outputs):
        return nn.Linear(2, outputs)

    assert name_of_model(mlpnet) == "own_mlpnet"
    assert name_of_model(lambda: nn.Linear(2, 2)) == "own_lambda"
    module = nn.Linear(2, 2)
    name = name_of_model(module)
    assert name.startswith("linear_") and name == name_of_model(module)
    nn.init.zeros_(module.bias)
    assert name_of_model(module) != name
    with pytest.raises(UserError, match="model must be a name, a torch module or a function"):
        name_of_model(3)
