"""What the machine refuses is one sentence in every command; a mistake in the program keeps its traceback."""

from __future__ import annotations

import errno
import os
import sys
import urllib.error
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import typer
from safetensors.torch import load_file, save_file

import idiolect as package
from idiolect.cli import main
from idiolect.cli.error_boundary import sentence_of


def read_parquet(folder: Path) -> None:
    (folder / "a").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    pq.read_table(folder / "a")


def raised_from(folder: Path) -> None:
    try:
        (folder / "none").read_text()
    except OSError as error:
        raise RuntimeError("a worker failed") from error


def raising(error: Exception) -> Callable[[Path], None]:
    def raise_it(folder: Path) -> None:
        raise error

    return raise_it


class MlflowException(Exception):
    __module__ = "mlflow.exceptions"


class DBAPIError(Exception):
    __module__ = "sqlalchemy.exc"


USERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing file": (
        lambda folder: (folder / "none").read_bytes(),
        "none: No such file or directory; check the",
    ),
    "folder for file": (lambda folder: folder.read_bytes(), "Is a directory; check the path"),
    "full disk": (
        lambda folder: Path("/dev/full").write_bytes(bytes(99999)),
        "No space left on device; free some space, or choose another place\n",
    ),
    "full disk, Arrow": (
        lambda folder: pa.OSFile("/dev/full", "wb").write(bytes(10**6)),
        "No space left on device; free some space, or choose another place\n",
    ),
    "no rights": (
        raising(PermissionError(errno.EACCES, "Permission denied", "/secret")),
        "/secret: Permission denied",
    ),
    "read-only": (
        raising(OSError(errno.EROFS, "Read-only file system", "/a")),
        "/a: Read-only file system; give",
    ),
    "open files": (raising(OSError(errno.EMFILE, "Too many open files")), "ulimit -n"),
    "long name": (
        lambda folder: (folder / ("a" * 300)).write_text(""),
        "File name too long; choose a shorter name",
    ),
    "no network": (raising(urllib.error.URLError("refused")), "check the address and the network"),
    "Parquet": (read_parquet, "a table cannot be read or written ("),
    "zip": (
        raising(zipfile.BadZipFile("File is not a zip file")),
        "not a zip file; check that the file is whole",
    ),
    "safetensors read": (lambda folder: load_file(__file__), "SafetensorError: "),
    "safetensors written": (
        lambda folder: save_file({"a": torch.zeros(1)}, folder / "none" / "a"),
        "No such file or directory",
    ),
    "MLflow": (raising(MlflowException("no such store\nmore")), "no such store; check MLFLOW_TRACKING_URI"),
    "database": (raising(DBAPIError("disk full")), "disk full; check the database"),
    "memory": (lambda folder: np.zeros(10**15), "there is not enough memory (Unable to allocate"),
    "memory of torch": (lambda folder: torch.zeros(10**15), "there is not enough memory ("),
    "cause": (raised_from, "none: No such file or directory"),
}
PROGRAMS: dict[str, Callable[[Path], object]] = {
    "division": lambda folder: 1 / 0,
    "type": lambda folder: len(3),
    "key": lambda folder: {}["a"],
    "Arrow computing": lambda folder: pa.array(["x"]).cast(pa.int64()),
    "bad descriptor": lambda folder: os.close(9999),
    "file of the package": lambda folder: (Path(package.__file__).parent / "nothing.toml").read_text(),
    "os error of nobody": raising(OSError("something odd")),
    "assertion": raising(AssertionError("no")),
}


def call(monkeypatch: pytest.MonkeyPatch, command: Callable[[], object]) -> None:
    application = typer.Typer(pretty_exceptions_enable=False)
    application.command()(lambda: command())
    monkeypatch.setattr(sys, "argv", ["idiolect"])
    main(application)


@pytest.mark.parametrize("case", USERS)
def test_what_the_machine_refuses_is_one_sentence(case, monkeypatch, capsys, tmp_path):
    do, piece = USERS[case]
    with pytest.raises(SystemExit) as end:
        call(monkeypatch, lambda: do(tmp_path))
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said.startswith("idiolect: ") and said.count("\n") == 1
    assert piece in said


@pytest.mark.parametrize("case", PROGRAMS)
def test_mistake_of_the_program_keeps_its_traceback(case, monkeypatch, tmp_path):
    with pytest.raises(BaseException) as found:  # noqa: PT011 - whatever it is, it comes through
        call(monkeypatch, lambda: PROGRAMS[case](tmp_path))
    assert not isinstance(found.value, SystemExit)
    assert sentence_of(found.value) is None


def test_traceback_of_a_refusal_can_be_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("IDIOLECT_TRACEBACK", "1")
    with pytest.raises(FileNotFoundError):
        call(monkeypatch, lambda: (tmp_path / "none").read_bytes())


def test_no_other_file_of_the_command_line_catches_what_the_machine_refuses():
    folder = Path(package.__file__).parent / "cli"
    caught = {
        path.name
        for path in folder.glob("*.py")
        if any(word in path.read_text() for word in ("except Exception", "SafetensorError", "BadZipFile"))
    }
    assert caught == {"__init__.py", "error_boundary.py"}
