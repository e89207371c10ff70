"""The protocol between the bench and the worker process of a row: one JSON document a line.

The bench writes a row and then commands to the worker's standard input; the worker writes one answer to each on its
standard output.  Whatever else a worker prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn, TextIO

import torch

from idiolect.bench.workloads import BenchCell
from idiolect.errors import UserError

__all__ = ["BenchConnection", "Failed", "WorkerProcess", "serve_row"]

PATIENCE = 20  # seconds that a worker has to end by itself after its input is closed


class Failed(UserError):
    """Says why a row cannot be timed."""


class WorkerProcess:
    """The bench's end: starts a worker, sends it commands and reads its answers.

    A row on the CPU sees no GPU, so that every engine behaves as on a machine without one.

    Args:
        row: the fields of the cell, the runner, and the number of threads that torch may use.
        command: starts the worker; the bench's own worker by default.
    """

    def __init__(self, row: dict[str, Any], command: Sequence[str] = ()) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        if row["cell"]["device"] == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed on exit
        self._process = subprocess.Popen(
            command or [sys.executable, "-m", "idiolect.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        self.tell(row)

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, command: dict[str, Any]) -> None:
        """Sends a command and does not wait for the answer."""
        assert self._process.stdin is not None
        with suppress(OSError):  # a dead worker is reported when its answer is missing
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        self.tell(command)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Waits for the next answer; the first one describes the row.

        Raises:
            Failed: the answer is an error, or the worker has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise Failed(f"the process ended with exit code {code}{self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def hang_up(self) -> None:
        """Closes the worker's input, which tells it to end."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdout is not None
        self.hang_up()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = [line.strip() for line in self._log.read().splitlines() if line.strip()]
        return f"; its last line was: {lines[-1]}" if lines else ""


@dataclass(frozen=True)
class BenchConnection:
    """The worker's end: reads commands and writes answers."""

    commands: TextIO
    answers: TextIO

    @classmethod
    def on_standard_streams(cls) -> BenchConnection:
        """Keeps standard output for answers; what the process prints from now on goes to standard error."""
        answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        return cls(sys.stdin, answers)

    def next(self) -> dict[str, Any] | None:
        """Waits for the next command; None means that the bench has hung up."""
        line = self.commands.readline()
        return json.loads(line) if line else None

    def answer(self, **facts: Any) -> None:
        self.answers.write(json.dumps(facts) + "\n")
        self.answers.flush()


def serve_row(serve: Callable[[BenchCell, str, BenchConnection], None]) -> NoReturn:
    """Runs a worker: reads the row, lets ``serve`` answer, reports an error, and ends the process."""
    connection = BenchConnection.on_standard_streams()
    row = connection.next()
    try:
        if row is not None:
            torch.set_num_threads(row["threads"])
            serve(BenchCell(**row["cell"]), row["runner"], connection)
    except UserError as error:
        connection.answer(error=str(error))
    except Exception as error:
        traceback.print_exc()
        connection.answer(error=f"{type(error).__name__}: {str(error).strip()}".splitlines()[0])
    os._exit(0)  # skips the interpreter's tear-down, which would only free memory
