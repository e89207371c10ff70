"""What the README and the page on your own data tell people to type works: blocks run, commands and targets exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from .documented_commands import (
    ROOT,
    Command,
    blocks_of,
    calls,
    check,
    check_make,
    check_names,
    commands_of,
    run_python,
)

README = ROOT / "README.md"

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


def test_python_blocks_run(tmp_path):
    done = run_python(blocks_of(TEXT), tmp_path)
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
        "idiolect datasets get mnist cifar10",
        "idiolect methods fedpre",
        "make tset",
    ],
)
def test_wrong_command_fails(line, monkeypatch):
    (command,) = [Command(1, words, True) for words in calls(line)]
    with pytest.raises(AssertionError):
        check(command, monkeypatch)


@pytest.mark.parametrize(
    "line",
    [
        "idiolect rnu",
        "idiolect run --methd",
        "idiolect datasets fetch",
        "idiolect datasets get a b",
        "make tset",
    ],
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
