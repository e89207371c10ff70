"""What the README and the page on your own data tell people to type works: blocks run, commands and targets exist."""

from __future__ import annotations

import inspect
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
README = ROOT / "README.md"
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
        for words in _calls(span[1]):
            found.append(Command(prose.count("\n", 0, span.start()) + 1, words, False))
    return found


def _typed(block: Block) -> Iterator[tuple[str, ...]]:
    """In a console block only the lines after a prompt are typed; the others are answers."""
    lines = block.code.replace("\\\n", " ").splitlines()
    prompted = [line.lstrip()[2:] for line in lines if line.lstrip().startswith("$ ")]
    for line in prompted if prompted or block.language == "console" else lines:
        yield from _calls(line)


def _calls(line: str) -> Iterator[tuple[str, ...]]:
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


# ---- checks


def check_make(words: tuple[str, ...]) -> None:
    tool = shutil.which("make")
    if tool is None:
        pytest.skip("make is not installed")
    done = subprocess.run(
        [tool, "-n", *words], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr


def check_names(words: tuple[str, ...]) -> None:
    """The command exists, and has the flags."""
    command: click.Command = typer.main.get_command(commands.app)
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no command {words[0]!r}; there are {sorted(command.commands)}"
        command, words = command.commands[words[0]], words[1:]
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    flags = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert flags <= known, f"{command.name} has no {sorted(flags - known)}; it has {sorted(known)}"


class Understood(Exception):
    """Raised in place of training."""


def _understand(chosen: list[str], given: dict[str, Any]) -> None:
    for text in chosen:
        methods.method(text)
    given["execution"].engine_choice()
    no_settings = {*inspect.signature(run).parameters, *inspect.signature(compare).parameters}
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


# ---- the README as it is

TEXT = README.read_text(encoding="utf-8")
COMMANDS = list(dict.fromkeys(commands_of(TEXT)))


def _title(command: Command) -> str:
    return f"line {command.line}: {' '.join(command.words)}"[:90]


@pytest.mark.parametrize("command", COMMANDS, ids=_title)
def test_readme_command_is_understood(command, monkeypatch):
    check(command, monkeypatch)


QUICK = [c for c in COMMANDS if c.whole and c.words[:2] == ("idiolect", "run") and "--quick" in c.words]
QUICK = [
    c for c in QUICK if "--method" in c.words and not {*c.words} & {"--dataset", "--data-dir", "--device"}
]


REPORTS = [c for c in COMMANDS if c.whole and c.words[:2] == ("idiolect", "report")]


def test_readme_quick_run_and_report_end_well(command):
    answer = command(*QUICK[0].words[1:])
    assert answer.code == 0, answer.err
    assert answer.out
    for told in REPORTS:
        answer = command(*told.words[1:])
        assert answer.code == 0, answer.err
        page = Path(answer.out.strip())
        formats = told.words[told.words.index("--format") + 1].split(",")
        assert {path.suffix[1:] for path in page.parent.iterdir()} == {"html", *formats}


YOUR_OWN = (ROOT / "docs" / "your-own.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", [TEXT, YOUR_OWN], ids=["README.md", "your-own.md"])
def test_python_blocks_run(text, tmp_path):
    done = run_python(blocks_of(text), tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", commands_of(YOUR_OWN), ids=_title)
def test_command_on_your_own_data_is_understood(command):
    (check_make if command.words[0] == "make" else check_names)(command.words[1:])


@pytest.mark.slow
def test_commands_on_your_own_data_end_well(command, tmp_path, monkeypatch):
    run_python(blocks_of(YOUR_OWN), tmp_path)
    monkeypatch.chdir(tmp_path)
    for told in commands_of(YOUR_OWN):
        if told.whole:
            answer = command(*told.words[1:])
            assert answer.code == 0, answer.err
    assert "gain over training alone (Local)" in answer.out


# ---- the checks themselves: right ones pass, wrong ones fail

SAMPLE = """# Title
Type `idiolect methods NAME` or `make test`; `idiolects` is no command.

```bash
make install && .venv/bin/idiolect run  # a comment
IDIOLECT_DATA=/data idiolect compare --methods "fedavg,map(alpha=0.5, rule=freq)" \\
    --rounds 3 | tee log
git clone somewhere; cd somewhere
```

```console
$ python -m idiolect run --method fedper --quick
$ idiolect run --method local --device cuda
idiolect run is what this line of output speaks of
```

```python
x = 1
```

```python
import idiolect
assert x == 1 and idiolect.method("fedper")
```
"""


def test_commands_are_found_in_blocks_and_in_sentences():
    found = commands_of(SAMPLE)
    assert [command.words for command in found if command.whole] == [
        ("make", "install"),
        ("idiolect", "run"),
        ("idiolect", "compare", "--methods", "fedavg,map(alpha=0.5, rule=freq)", "--rounds", "3"),
        ("idiolect", "run", "--method", "fedper", "--quick"),
        ("idiolect", "run", "--method", "local", "--device", "cuda"),
    ]
    named = [command for command in found if not command.whole]
    assert named == [
        Command(2, ("idiolect", "methods", "NAME"), False),
        Command(2, ("make", "test"), False),
    ]


def test_right_commands_pass(monkeypatch):
    for command in commands_of(SAMPLE):
        check(command, monkeypatch)


@pytest.mark.parametrize(
    "line",
    [
        "idiolect rnu",
        "idiolect run --methd fedavg",
        "idiolect run --method fedpre",
        "idiolect run --method 'map(alfa=1)'",
        "idiolect run --rounds three",
        "idiolect run --set rouns=3",
        "idiolect run --dataset mnst",
        "idiolect run --method fedavg --model mlpnt",
        "idiolect run --method fedavg --partition idd",
        "idiolect compare --methods fedavg,map(",
        "idiolect compare --method fedavg",
        "idiolect datasets fetch mnist",
        "idiolect datasets get mnst",
        "idiolect methods fedpre",
        "make tset",
    ],
)
def test_wrong_command_fails(line, monkeypatch):
    (command,) = [Command(1, words, True) for words in _calls(line)]
    with pytest.raises(AssertionError):
        check(command, monkeypatch)


@pytest.mark.parametrize(
    "line", ["idiolect rnu", "idiolect run --methd", "idiolect datasets fetch", "make tset"]
)
def test_wrong_command_in_a_sentence_fails(line, monkeypatch):
    (command,) = commands_of(f"Type `{line}`.")
    with pytest.raises(AssertionError):
        check(command, monkeypatch)


def test_python_blocks_run_one_after_the_other(tmp_path):
    done = run_python(blocks_of(SAMPLE), tmp_path)
    assert done.returncode == 0, done.stderr


def test_wrong_python_block_fails_with_its_line(tmp_path):
    done = run_python(blocks_of("Text\n\n```python\ny = 2\nassert y == 3\n```\n"), tmp_path)
    assert done.returncode == 1
    assert 'File "README.md", line 5' in done.stderr and "AssertionError" in done.stderr
