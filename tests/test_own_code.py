"""Loading code of the user's own: files, modules, plugins, and a digest of the text behind a registered function."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest

from idiolect import own_code
from idiolect.errors import UserError
from idiolect.evaluation.metrics import _KNOWN as KNOWN_METRICS
from idiolect.experiments import Experiment
from idiolect.experiments.identity import hash_of
from idiolect.methods import method, names
from idiolect.methods.catalogue import METHODS, PARTS
from idiolect.models.registered_models import REGISTERED
from idiolect.own_code import load_code, loaded_code, source_digest
from idiolect.partition import partition
from idiolect.partition.catalogue import PARTITIONS

CODE = """
from dataclasses import dataclass
from functools import wraps
import numpy as np
import idiolect
from idiolect.core import Part
from idiolect.partition import Partition

FACTOR = 2.0
SHIFT = 0.5

def doubled(function):
    @wraps(function)
    def outer(*given):
        return 2 * function(*given)
    return outer

@dataclass
class Kept:
    scale: "float" = 1.0

    def of(self, value):
        return self.scale * value

@doubled
def scaled(value, shift=SHIFT):
    return FACTOR * value + shift

def gentle(strength: float = 0.1) -> Part:
    def loss(inner, view):
        kept = Kept()
        return lambda params, batch, out: inner(params, batch, out) + kept.of(scaled(strength)) * out.features.mean()
    return Part("gentle", loss=loss)

def turns(labels, n_clients, *, seed, first: int = 0):
    rows = np.arange(len(labels))
    return Partition(tuple(rows[(k + first) % n_clients :: n_clients] for k in range(n_clients)))

idiolect.register_part("gentle", gentle)
idiolect.register_partition("turns", turns)
idiolect.register_metric("surprise", lambda p: p.mean(p.negative_log_likelihood > 1), higher_is_better=False)
"""


@pytest.fixture(autouse=True)
def catalogues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forgets what a test registers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(own_code, "_LOADED", {})
    monkeypatch.setattr(own_code, "_GIVEN", {})
    monkeypatch.setattr(own_code, "_PLUGINS", set())
    held = [(catalogue, dict(catalogue)) for catalogue in (METHODS, PARTS, PARTITIONS, REGISTERED)]
    metrics = list(KNOWN_METRICS)
    yield
    for catalogue, before in held:
        catalogue.clear()
        catalogue.update(before)
    KNOWN_METRICS[:] = metrics


def written(text: str = CODE, name: str = "mine.py") -> str:
    Path(name).write_text(text)
    return name


def forget() -> None:
    """As a fresh process would be."""
    PARTS.pop("gentle", None)
    PARTITIONS.pop("turns", None)
    KNOWN_METRICS[:] = [known for known in KNOWN_METRICS if known[0] != "surprise"]
    own_code._LOADED.clear()


def test_file_runs_once_and_what_it_registers_is_known():
    load_code(written())
    load_code("mine.py")
    assert [loaded.source for loaded in loaded_code()] == ["mine.py"]
    assert method("fedavg + gentle(strength=2)").parts[1].written == "gentle(strength=2)"
    assert [list(rows) for rows in partition("turns(first=1)", [0, 0, 1], 2, 0).clients] == [[1], [0, 2]]


def test_module_is_found_in_the_current_folder():
    Path("own_package").mkdir()
    Path("own_package/__init__.py").touch()
    written(name="own_package/methods.py")
    try:
        load_code("own_package.methods")
        assert "gentle" in PARTS
        assert [loaded.source for loaded in loaded_code()] == ["own_package.methods"]
    finally:
        for name in [name for name in sys.modules if name.startswith("own_package")]:
            del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1\nx = = 2\n", "mine.py, line 2: SyntaxError invalid syntax"),
        ("\n\ny = 1 / 0\n", "mine.py, line 3: ZeroDivisionError division by zero"),
        ("def f():\n    raise ValueError('no\\nway')\nf()\n", "mine.py, line 2: ValueError no"),
        ("import sys\nsys.exit(3)\n", "mine.py, line 2: SystemExit 3"),
        (
            "import nothing_of_the_kind\n",
            "mine.py, line 1: ModuleNotFoundError No module named 'nothing_of_the_kind'",
        ),
        (
            "import idiolect\nidiolect.register_part('average', lambda: None)\n",
            "mine.py, line 2: average is a method or part already; choose another name",
        ),
        ("x = '\0'", "mine.py"),
    ],
)
def test_file_that_cannot_run_is_a_sentence_with_file_line_and_error(text, sentence):
    with pytest.raises(UserError) as refused:
        load_code(written(text))
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)
    assert loaded_code() == []


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("nope.py", "there is no file nope.py of code to load"),
        ("no/file", "there is no file no/file of code to load"),
        ("nope.module", "module nope.module cannot be loaded: ModuleNotFoundError No module named 'nope'"),
        ("a b", "'a b' is neither a Python file nor the dotted path of a module"),
    ],
)
def test_code_that_is_not_there_is_a_sentence(source, sentence):
    with pytest.raises(UserError) as refused:
        load_code(source)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("out.features.mean()", "out.features.sum()"),
        ("FACTOR * value", "FACTOR + value"),
        ("SHIFT = 0.5", "SHIFT = 0.6"),
        ("2 * function", "3 * function"),
        ("FACTOR = 2.0", "FACTOR = 3.0"),
        ("self.scale * value", "self.scale + value"),
        ("(k + first)", "(k - first)"),
        ("log_likelihood > 1", "log_likelihood > 2"),
    ],
)
def test_changed_code_is_another_run(old, new):
    experiment = Experiment(method="fedavg + gentle", partition="turns", metrics="surprise")
    hashes = []
    for text in (CODE, CODE, CODE.replace(old, new), CODE + "\n\nUNUSED = 1\n"):
        forget()
        load_code(written(text))
        hashes.append(hash_of(experiment))
    assert hashes[0] == hashes[1] == hashes[3]
    assert hashes[2] != hashes[0]


def test_runs_without_own_code_keep_their_hash():
    before = hash_of(Experiment())
    load_code(written())
    assert hash_of(Experiment()) == before
    assert hash_of(replace(Experiment(), metrics="auroc")) != before


def test_digest_covers_what_a_function_closes_over_and_holds_no_addresses():
    def made(strength, table=None):
        table = {"mean": test_digest_covers_what_a_function_closes_over_and_holds_no_addresses}
        return lambda: (strength, table)

    assert source_digest(made(1)) == source_digest(made(1)) != source_digest(made(2))
    assert source_digest(method) == ""


def test_plugins_are_loaded_when_a_name_is_looked_up(monkeypatch):
    written(name="plugin_of_mine.py")
    monkeypatch.syspath_prepend(".")
    point = EntryPoint("mine", "plugin_of_mine", own_code.PLUGINS)
    monkeypatch.setattr(own_code, "_plugins", lambda: (point,))
    try:
        assert "gentle" not in PARTS
        method("fedavg + gentle")
        partition("turns", [0, 1], 1, 0)
        assert loaded_code()[0].source == "plugin_of_mine"
    finally:
        sys.modules.pop("plugin_of_mine", None)


def test_broken_plugin_is_named(monkeypatch):
    written("1 / 0\n", "broken_plugin.py")
    monkeypatch.syspath_prepend(".")
    point = EntryPoint("mine", "broken_plugin:load", own_code.PLUGINS)
    monkeypatch.setattr(own_code, "_plugins", lambda: (point,))
    for _ in range(2):
        with pytest.raises(
            UserError, match=r"^plugin mine \(broken_plugin:load\) cannot be loaded: .*line 1: Zero"
        ):
            names()


@pytest.mark.parametrize(
    ("name", "function", "sentence"),
    [
        ("Turns", lambda labels, n_clients, *, seed: None, "'Turns' cannot name a partition"),
        ("iid", lambda labels, n_clients, *, seed: None, "iid is a partition already"),
        ("natural", lambda labels, n_clients, *, seed: None, "natural is a partition already"),
        ("mine", 3, "partition mine needs a function, not 3"),
        ("mine", lambda labels, *, seed: None, r"must take \(labels, n_clients, \*, seed\)"),
        ("mine", lambda labels, n_clients: None, r"must take \(labels, n_clients, \*, seed\)"),
        (
            "mine",
            lambda labels, n_clients, *, seed, k: None,
            "option k must be keyword-only and have a default",
        ),
    ],
)
def test_unusable_partition_is_refused_when_it_is_registered(name, function, sentence):
    from idiolect import register_partition  # noqa: PLC0415 - the public name

    with pytest.raises(UserError, match=sentence):
        register_partition(name, function)


def test_partition_that_returns_something_else_is_refused():
    PARTITIONS["mine"] = lambda labels, n_clients, *, seed: [[0], [1]]
    with pytest.raises(UserError, match="partition mine returned list, not a Partition"):
        partition("mine", [0, 1], 2, 0)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: method("fedavg"), "mine makes the method fedavg, not a part; use register"),
        (lambda: 3, "mine must make a Method or a Part, it made int"),
        (lambda weight: None, "mine: option weight of its function needs a default"),
        (3, "mine needs a function that makes it, not 3"),
    ],
)
def test_unusable_part_is_refused_when_it_is_registered(make, sentence):
    from idiolect import register_part  # noqa: PLC0415 - the public name

    with pytest.raises(UserError) as refused:
        register_part("mine", make)
    assert str(refused.value) == sentence


def test_module_of_a_file_is_no_module_of_the_process():
    load_code(written())
    assert not [name for name in sys.modules if name.startswith("idiolect_own")]
    assert isinstance(own_code._LOADED[loaded_code()[0].sha256][1], ModuleType)
