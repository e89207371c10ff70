"""Blocks of code and commands in documents, and checks that they work."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
import typer

from idiolect import cli, data, methods, models
from idiolect import partition as partitions
from idiolect.cli import commands
from idiolect.experiments import Experiment, compare, run, with_settings
from idiolect.option_parsing import parse_call

ROOT = Path(__file__).parents[2]
SHELLS = ("bash", "sh", "shell", "console")


class Block(NamedTuple):
    line: int
    language: str
    code: str


class Command(NamedTuple):
    line: int
    words: tuple[str, ...]
    whole: bool  # a line of a block; a command named within a sentence may leave values out


def blocks_of(text: str) -> list[Block]:
    pattern = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
    return [
        Block(text.count("\n", 0, found.start()) + 2, found[2], re.sub(f"(?m)^{found[1]}", "", found[3]))
        for found in pattern.finditer(text)
    ]


def commands_of(text: str) -> list[Command]:
    """Every call of idiolect or make, in shell blocks and between backquotes."""
    found = []
    for block in blocks_of(text):
        if block.language in SHELLS:
            found += [Command(block.line, words, True) for words in _typed(block)]
    prose = re.sub(r"^( *)```.*?^\1```", lambda b: "\n" * b[0].count("\n"), text, flags=re.M | re.S)
    for span in re.finditer(r"`([^`\n]+)`", prose):
        for words in calls(span[1]):
            found.append(Command(prose.count("\n", 0, span.start()) + 1, words, False))
    return found


def _typed(block: Block) -> Iterator[tuple[str, ...]]:
    """In a console block only the lines after a prompt are typed; the others are answers."""
    lines = block.code.replace("\\\n", " ").splitlines()
    prompted = [line.lstrip()[2:] for line in lines if line.lstrip().startswith("$ ")]
    for line in prompted if prompted or block.language == "console" else lines:
        yield from calls(line)


def calls(line: str) -> Iterator[tuple[str, ...]]:
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;>")
        lexer.whitespace_split = True
        tokens = list(lexer)
    except ValueError:
        return
    words: list[str] = []
    for token in [*tokens, ";"]:
        if set(token) <= set("&|;>"):
            yield from _ours(words)
            words = []
        else:
            words.append(token)


def _ours(words: list[str]) -> Iterator[tuple[str, ...]]:
    while words and re.fullmatch(r"\w+=\S*", words[0]):
        words = words[1:]
    if len(words) > 2 and Path(words[0]).name.startswith("python") and words[1:3] == ["-m", "idiolect"]:
        words = ["idiolect", *words[3:]]
    if words and Path(words[0]).name in ("idiolect", "make"):
        yield (Path(words[0]).name, *words[1:])


def check_make(words: tuple[str, ...]) -> None:
    tool = shutil.which("make")
    if tool is None:
        pytest.skip("make is not installed")
    done = subprocess.run(
        [tool, "-n", *words], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr


def check_names(words: tuple[str, ...]) -> None:
    """The command exists, has the flags, and takes as many arguments."""
    command: click.Command = typer.main.get_command(commands.app)
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no command {words[0]!r}; there are {sorted(command.commands)}"
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    flags = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert flags <= known, f"{command.name} has no {sorted(flags - known)}; it has {sorted(known)}"
    if not isinstance(command, click.Group):
        context = click.Context(command, resilient_parsing=True)  # a sentence may leave values out
        _, strange, _ = command.make_parser(context).parse_args([*words])
        strange = [word for word in strange if word != "..."]
        assert strange == [], f"{command.name} takes no {shlex.join(strange)}"


class Understood(Exception):
    """Raised in place of training."""


def _understand(chosen: list[str], given: dict[str, Any]) -> None:
    for text in chosen:
        methods.method(text)
    given["execution"].engine_choice()
    no_settings = {**run.__kwdefaults__, **compare.__kwdefaults__}
    settings = {key: value for key, value in given.items() if key not in no_settings}
    experiment = with_settings(Experiment(), settings)
    assert experiment.dataset.partition("(")[0] in data.names()
    assert parse_call(experiment.partition)[0] in partitions.names()
    models.build(experiment.model, (3, 32, 32), 10)
    raise Understood


def check_whole(words: tuple[str, ...], patch: pytest.MonkeyPatch) -> None:
    """The command line takes the command; a run stops where training would begin, a listing is printed."""

    def run(method: str, **given: Any) -> None:
        _understand([method], given)

    def compare(names: list[str], **given: Any) -> None:
        _understand(names, given)

    def get(name: str, folder: Path | None) -> None:
        assert name in data.names()

    def gather(places: list[Path], say: Any) -> list[Any]:
        assert places
        raise Understood

    patch.setattr("idiolect.cli.report.gather", gather)
    patch.setattr("idiolect.cli.run_and_compare.run", run)
    patch.setattr("idiolect.cli.run_and_compare.compare", compare)
    patch.setattr(data, "get", get)
    patch.setattr("torch.cuda.is_available", lambda: True)
    patch.setattr(sys, "argv", ["idiolect", *words])
    try:
        cli.main()
        code: Any = 0
    except Understood:
        code = 0
    except SystemExit as end:
        code = end.code
    assert not code, f"idiolect {shlex.join(words)} exits with {code}"


def check(command: Command, patch: pytest.MonkeyPatch) -> None:
    if command.words[0] == "make":
        check_make(command.words[1:])
        return
    check_names(command.words[1:])
    if command.whole:
        check_whole(command.words[1:], patch)


RUNNER = """
import sys
namespace = {"__name__": "__main__"}
for number, code in eval(sys.stdin.read()):
    exec(compile("\\n" * (number - 1) + code, "README.md", "exec"), namespace)
"""


def run_python(blocks: list[Block], folder: Path) -> subprocess.CompletedProcess[str]:
    """One block after the other in one process, as a reader types them."""
    code = [(block.line, block.code) for block in blocks if block.language in ("python", "py")]
    return subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=repr(code),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
