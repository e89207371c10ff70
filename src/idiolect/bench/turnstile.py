"""The worker's end of the line to the bench: one JSON document a line, a command in, an answer out.

What a row prints goes to standard error, so that nothing but answers travels on the line.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import Any, TextIO

__all__ = ["Turnstile"]


@dataclass(frozen=True)
class Turnstile:
    commands: TextIO
    answers: TextIO

    @classmethod
    def on_standard_streams(cls) -> Turnstile:
        """Takes standard output for itself and leaves standard error in its place."""
        answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        return cls(sys.stdin, answers)

    def next(self) -> dict[str, Any] | None:
        """The next command; None when the bench has hung up."""
        line = self.commands.readline()
        return json.loads(line) if line else None

    def answer(self, **facts: Any) -> None:
        self.answers.write(json.dumps(facts) + "\n")
        self.answers.flush()
