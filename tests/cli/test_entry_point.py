"""The entry point: version, order of commands, completion, and Ctrl-C while commands are imported."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from typer.main import get_command

from idiolect import cli, version
from idiolect.cli.commands import app


def test_version_is_told_without_torch():
    script = "import sys; sys.argv = ['idiolect', '--version']; from idiolect.cli import main; main(); "
    done = subprocess.run(
        [sys.executable, "-c", script + "print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:2] == [f"idiolect {version.__version__}", "False"]


def test_version_is_told_among_other_words(idiolect):
    answer = idiolect("--version", "run")
    assert (answer.code, answer.out) == (0, f"idiolect {version.__version__}\n")


def test_commands_are_listed_in_the_order_of_their_use():
    group = get_command(app)
    listed = group.list_commands(None)
    assert listed[:3] == ["run", "compare", "sweep"] and listed[-2:] == ["bench", "deploy"]
    assert set(listed) == set(group.commands)


def test_ctrl_c_while_commands_are_imported_is_one_word(monkeypatch, capsys):
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", interrupted)
    monkeypatch.setattr(sys, "argv", ["idiolect", "run"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "idiolect: interrupted\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("idiolect comp", "compare"),
        ("idiolect run --method fedpr", "fedprox"),
        ("idiolect compare --methods map,fedpr", "map,fedprox"),
        ("idiolect run --dataset fashion-mnist-1", "fashion-mnist-12k"),
        ("idiolect run --model vgg1", "vgg16_bn"),
        ("idiolect run --partition label", "label_k"),
        ("idiolect run --scenario persfl-mnist", "persfl-mnist-ds3"),
        ("idiolect run --engine c", "cohort"),
        ("idiolect run --save", "--save-config"),
    ],
)
def test_shell_completes_names(words, expected, idiolect, monkeypatch):
    monkeypatch.setenv("_IDIOLECT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert expected in idiolect().out.split()


def test_help_of_a_deployment_needs_no_flower(idiolect, refused, monkeypatch):
    deploy = importlib.import_module("idiolect.cli.deploy")

    def missing(name: str) -> str:
        raise deploy.PackageNotFoundError

    monkeypatch.setattr(deploy, "version", missing)
    for words in (["deploy", "--help"], ["deploy", "init", "--help"], ["deploy", "up", "--help"]):
        answer = idiolect(*words)
        assert answer.code == 0 and "Usage" in answer.out
    refused(idiolect("deploy", "status"), "deploy needs Flower")
