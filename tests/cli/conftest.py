"""The command line called as a user calls it, on a federation small enough to train in a blink."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from idiolect.cli import main

torch.set_num_threads(1)

DATA = "synthetic(n_clients=4, samples_per_client=20, n_features=8, n_classes=3)"
FEDERATION = ("--dataset", DATA, "--partition", "by_id", "--clients", "4", "--model", "mlpnet(hidden=8)")


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Answer]


@pytest.fixture
def small() -> tuple[str, ...]:
    """Flags of a run that takes a fraction of a second; a flag given after them wins."""
    everyone = ("--set", "participation_rate=1.0")
    return (*FEDERATION, "--rounds", "2", "--engine", "loop", "--device", "cpu", *everyone)


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No colour, no dataset of the machine, and the current folder a fresh one."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("IDIOLECT_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def idiolect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """The command in this process; whatever is no exit comes through as the exception it is."""

    def call(*words: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["idiolect", *map(str, words)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture
def command() -> Call:
    """The command in a process of its own."""

    def call(*words: object) -> Answer:
        done = subprocess.run(
            [sys.executable, "-m", "idiolect", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=os.environ.copy(),
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def refused() -> Callable[[Answer, str], None]:
    """Asserts a refusal: exit code 2, and one sentence on standard error which holds the given pieces."""

    def check(answer: Answer, *pieces: str) -> None:
        assert answer.code == 2, answer
        assert answer.out == ""
        assert answer.err.startswith("idiolect: ")
        assert answer.err.count("\n") == 1 and answer.err.endswith("\n"), "not one line"
        assert "Traceback" not in answer.err
        for piece in pieces:
            assert piece in answer.err

    return check


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    """A data folder with a small MNIST of five rows a class, unpacked."""
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for part in ("train", "t10k"):
        labels = np.repeat(np.arange(10), 5)
        images = random.integers(0, 256, (len(labels), 28, 28))
        for stem, values in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
            (folder / stem).write_bytes(header + values.astype(np.uint8).tobytes())
    return folder
