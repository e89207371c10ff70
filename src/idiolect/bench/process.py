"""A row's process seen from the bench: it is asked, it answers, and when it dies that is said in a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from types import TracebackType
from typing import Any

from idiolect.errors import UserError

__all__ = ["Failed", "Process"]

PATIENCE = 20  # seconds in which a worker may end by itself once the line is closed


class Failed(UserError):
    """A row that cannot be timed, and why."""


class Process:
    """Args:
    row: the cell's fields, the runner, and the threads that torch may use.

    A row on the CPU does not see any GPU, so that every engine runs there as on a machine without one.
    """

    def __init__(self, row: dict[str, Any]) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        if row["cell"]["device"] == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed on exit
        self._process = subprocess.Popen(
            [sys.executable, "-m", "idiolect.bench.worker"],
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
        """Sends a command and does not wait."""
        assert self._process.stdin is not None
        with suppress(OSError):  # a dead worker is named when its answer is missing
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        self.tell(command)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The answer to the last command; the first one, to the row itself, says what the row is.

        Raises:
            Failed: the answer is an error, or does not come.
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
        """Tells the worker that nothing more will be asked."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def __enter__(self) -> Process:
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
