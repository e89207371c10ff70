"""Config files: what --save-config writes, --config runs again; a mistake names the file and the key."""

from __future__ import annotations

import math
import tomllib
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idiolect.cli.config_file import EXECUTION, SETTINGS, read_config, save_config, write_toml
from idiolect.cli.options import OwnDataOptions
from idiolect.experiments import Execution, Experiment
from idiolect.experiments.progress.watcher import Silent


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    """Runs are written without pictures, which take seconds."""
    for module in ("idiolect.cli.run_and_compare", "idiolect.experiments.compare"):
        monkeypatch.setattr(import_module(module), "write_report", lambda *given: None)


TEXT = st.text(st.characters(codec="utf-8"))
SCALARS = st.one_of(TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))
KEYS = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)


@settings(max_examples=50, deadline=None)
@given(
    top=st.dictionaries(KEYS, VALUES, max_size=3), table=st.dictionaries(KEYS, VALUES, min_size=1, max_size=5)
)
def test_what_is_written_is_read_back(top, table):
    found = tomllib.loads(write_toml(top, {"TABLE": table}))
    assert found.pop("TABLE") == table
    assert found == top


def test_not_a_number_is_written_as_toml_does():
    assert math.isnan(tomllib.loads(write_toml({"a": math.nan}, {}))["a"])


def test_every_setting_and_option_has_a_key():
    assert {f.name for f in fields(Experiment)} == SETTINGS.keys() | {"method", "seed"}
    assert {f.name for f in fields(Execution)} == EXECUTION.keys() | {"watcher"}


def runs_in(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("**/manifest.json"))


def test_saved_config_of_a_run_makes_the_same_run(idiolect, small, tmp_path):
    saved, again = tmp_path / "run.toml", tmp_path / "again.toml"
    words = (
        "--method",
        "fedprox(weight=0.5)",
        "--seed",
        "3",
        "--set",
        "clip_norm=2.5",
        "--set",
        "checkpoint_every=1",
    )
    first = idiolect("run", *small, *words, "--out", tmp_path / "a", "--save-config", saved)
    assert first.code == 0, first.err
    assert f"config written: {saved}" in first.err
    second = idiolect("run", "--config", saved, "--out", tmp_path / "b", "--save-config", again)
    assert second.code == 0, second.err
    assert runs_in(tmp_path / "a") == runs_in(tmp_path / "b") and len(runs_in(tmp_path / "a")) == 1
    one, other = (read_config(path) for path in (saved, again))
    assert (one.top, one.settings) == (other.top, other.settings)
    assert one.settings["clip_norm"] == 2.5 and one.settings.keys() == SETTINGS.keys() - {
        "data_seed",
        "under",
    }


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "--methods", "fedavg,map(alpha=0.5)", "--seeds", "2"],
        ["sweep", "--methods", "fedavg", "--vary", "momentum=0.0,0.9", "--seed", "1"],
    ],
    ids=lambda words: words[0],
)
def test_saved_config_of_several_runs_makes_the_same_runs(words, idiolect, small, tmp_path):
    saved = tmp_path / "all.toml"
    first = idiolect(*words, *small, "--out", tmp_path / "a", "--save-config", saved)
    assert first.code == 0, first.err
    second = idiolect(words[0], "--config", saved, "--out", tmp_path / "b")
    assert second.code == 0, second.err
    names = [sorted(path.name for path in (tmp_path / out).iterdir()) for out in "ab"]
    assert names[0] == names[1]
    assert runs_in(tmp_path / "a") == runs_in(tmp_path / "b")


def test_saved_config_of_a_scenario_makes_the_same_run(idiolect, small, tmp_path):
    words = ("--scenario", "persfl-mnist-ds3", "--method", "fedavg", *small, "--set", "pool=train")
    first = idiolect("run", *words, "--out", tmp_path / "a", "--save-config", tmp_path / "run.toml")
    assert first.code == 0, first.err
    second = idiolect("run", "--config", tmp_path / "run.toml", "--out", tmp_path / "b")
    assert second.code == 0, second.err
    assert runs_in(tmp_path / "a") == runs_in(tmp_path / "b")
    assert "scenario persfl-mnist-ds3, preset paper" in second.out


@pytest.mark.parametrize("split", [(), ("--split-by", "time:x")], ids=["at-random", "by-time"])
def test_saved_config_of_own_data_makes_the_same_run(split, idiolect, tmp_path):
    rows = [f"{'abc'[i % 3]},{i % 7},{i % 5},{'yes' if i % 7 > i % 5 else 'no'}" for i in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["site,x,z,label", *rows]))
    described = ("--data", "rows.csv", "--client-column", "site", "--label-column", "label", *split)
    words = ("--method", "fedper", *described, "--rounds", "1", "--engine", "loop")
    first = idiolect("run", *words, "--out", tmp_path / "a", "--save-config", "own.toml")
    assert first.code == 0, first.err
    second = idiolect("run", "--config", "own.toml", "--out", tmp_path / "b")
    assert second.code == 0, second.err
    assert runs_in(tmp_path / "a") == runs_in(tmp_path / "b") and len(runs_in(tmp_path / "a")) == 1
    found = read_config(Path("own.toml"))
    assert found.data["path"] == str(tmp_path / "rows.csv") and found.data["client_column"] == "site"
    assert "dataset" not in found.settings and found.settings["partition"] == "natural"


def test_data_of_the_hub_keep_their_address_in_a_config(tmp_path):
    own = OwnDataOptions(data=Path("hf:someone/rows"), vocabulary=9)
    save_config(tmp_path / "a.toml", "run", {}, {}, Execution(watcher=Silent()), own)
    assert read_config(tmp_path / "a.toml").data == {"path": "hf:someone/rows", "vocabulary": 9}


def test_later_words_win_over_the_config(idiolect, small, tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('method = "fedavg"\nseed = 4\n[settings]\nrounds = 9\nbatch_size = 7\nmomentum = 0.5\n')
    words = ("--set", "batch_size=6", "--seed", "5", "--save-config", tmp_path / "b.toml")
    answer = idiolect("run", *small, "--config", path, *words, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    found = read_config(tmp_path / "b.toml")
    assert (found.top["seed"], found.settings["rounds"]) == (5, 2)
    assert (found.settings["batch_size"], found.settings["momentum"]) == (6, 0.5)


def test_quick_wins_over_the_config(idiolect, tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('method = "fedavg"\n[settings]\nrounds = 9\nevaluate_every = 100\nmomentum = 0.25\n')
    words = ("--quick", "--rounds", "1", "--model", "mlpnet(hidden=2)", "--engine", "loop")
    answer = idiolect(
        "run", "--config", path, *words, "--save-config", tmp_path / "b.toml", "--out", tmp_path / "o"
    )
    assert answer.code == 0, answer.err
    found = read_config(tmp_path / "b.toml").settings
    assert (found["rounds"], found["evaluate_every"], found["momentum"]) == (1, 3, 0.25)


WRONG = {
    "no-toml": ("method = ", "is not valid TOML: "),
    "unknown-key": ("metod = 'fedavg'", "unknown key 'metod'; did you mean method"),
    "unknown-table": ("[setings]\nrounds = 3", "unknown key 'setings'; did you mean settings?"),
    "unknown-setting": ("[settings]\nrouns = 3", "[settings] there is no setting 'rouns'"),
    "unknown-option": (
        "[execution]\nenigne = 'loop'",
        "[execution] unknown key 'enigne'; did you mean engine?",
    ),
    "wrong-kind": ("[settings]\nrounds = 'three'", "[settings] rounds must be int, got 'three'"),
    "wrong-kind-of-key": ("method = 3", "method must be str, got 3"),
    "wrong-kind-of-option": ("[execution]\nworkers = 'two'", "[execution] workers must be int, got 'two'"),
    "list-for-number": ("[settings]\nrounds = [3]", "[settings] rounds must be int, got [3]"),
    "table-for-number": ("[settings.rounds]\na = 3", "[settings] rounds must be int, got {'a': 3}"),
    "number-for-table": ("settings = 3", "settings is a table; write [settings]"),
    "method-in-settings": ("[settings]\nmethod = 'fedavg'", "[settings] there is no setting 'method'"),
    "other-command": ("methods = ['fedavg']", "idiolect run takes no methods"),
    "other-table": ("[sweep]\nvary = ['momentum=0,1']", "[sweep] is for idiolect sweep, not for run"),
    "out-of-range": ("method = 'fedavg'\n[settings]\nrounds = 0", "rounds must be at least 1, got 0"),
    "data-without-path": ("method = 'fedavg'\n[data]\nclient_column = 'site'", "give --data PATH too"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_config_is_refused_in_a_sentence(case, idiolect, refused, tmp_path):
    text, sentence = WRONG[case]
    path = tmp_path / "a.toml"
    path.write_text(text)
    names_file = () if case in ("out-of-range", "data-without-path") else (str(path),)
    refused(idiolect("run", "--config", path, "--out", tmp_path / "out"), sentence, *names_file)
    assert not (tmp_path / "out").exists()


def test_config_that_cannot_be_read_or_written_is_refused(idiolect, refused, small, tmp_path):
    refused(idiolect("run", "--config", tmp_path / "no.toml"), "no.toml: No such file or directory")
    refused(idiolect("run", "--config", tmp_path), "Is a directory")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    refused(idiolect("run", "--config", tmp_path / "binary.toml"), "binary.toml: it is no text")
    words = ("--method", "fedavg", "--save-config", tmp_path / "none" / "a.toml", "--out", tmp_path / "out")
    refused(idiolect("run", *small, *words), "there is no folder")
    words = ("--method", "fedavg", "--save-config", tmp_path, "--out", tmp_path / "out")
    refused(idiolect("run", *small, *words), f"cannot write the config {tmp_path}: ", "choose another path")
    assert not (tmp_path / "out").exists()


def test_config_takes_a_list_of_disturbances(idiolect, tmp_path):
    saved = tmp_path / "saved.toml"
    asked = ["--under", "dropout(rate=0.2)", "--under", "late", "--rounds", 1, "--set", "clients=4"]
    small = ["--model", "mlpnet(hidden=8)", "--partition", "iid", "--engine", "loop"]
    first = idiolect(
        "run", "--method", "fedavg", *asked, *small, "--out", tmp_path / "a", "--save-config", saved
    )
    assert first.code == 0, first.err
    assert read_config(saved).settings["under"] == ["dropout(rate=0.2)", "late(share=0.2, delay=1)"]
    second = idiolect("run", "--config", saved, "--out", tmp_path / "b")
    assert second.code == 0, second.err
    assert runs_in(tmp_path / "a") == runs_in(tmp_path / "b")
