"""The audit log of a deployment: who gave which command, who joined, who was left out and why, whom each round used.

One JSON object a line, which is only ever appended.  Each holds the SHA-256 of the line before it, so a line that was
changed, removed or put in between shows, unless all lines after it were written anew.
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import json
import os
import pwd
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["AuditLog", "audit_log_of"]

FILE = "audit.jsonl"
BLOCK = 1 << 16  # bytes that are read at a time from the end
MOST_CHARACTERS = 500  # of a text in it, which may come from a site
BEGINNING = "0" * 64  # in the place of a line before the first


@dataclass(frozen=True)
class AuditLog:
    """The log in a folder of a server or of a site; several processes may write it."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / FILE

    def append(self, event: str, facts: Mapping[str, Any]) -> None:
        """Adds a line, and returns when it is on disk."""
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = _last_line(file)
            torn = b"" if end.endswith(b"\n") or not end else b"\n"  # a process was killed as it wrote
            last = end.removesuffix(b"\n") if end else None
            at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            short = {
                key: fact[:MOST_CHARACTERS] if isinstance(fact, str) else fact for key, fact in facts.items()
            }
            line = {"at": at, "event": event, **short, "before": _digest(last)}
            os.write(file, torn + json.dumps(line).encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    def command(self, name: str, options: Mapping[str, Any]) -> None:
        """Notes a command, and the account that gave it."""
        user = os.getuid()
        try:
            account = pwd.getpwuid(user).pw_name
        except KeyError:
            account = ""
        given = {key: value for key, value in options.items() if value is not None and value is not False}
        facts = {"command": name, "account": account, "user": user, "options": given}
        self.append("command", json.loads(json.dumps(facts, default=str)))

    def lines(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Yields the lines, the oldest first, each with a sentence where something is wrong with it, else with none."""
        last = None
        written = self.path.read_bytes().removesuffix(b"\n").split(b"\n") if self.path.exists() else []
        for number, content in enumerate(written, 1):
            where = f"line {number} of {self.path}"
            try:
                line = dict(json.loads(content))
            except (ValueError, TypeError, RecursionError):
                yield {}, f"{where} cannot be read: it was changed, or a process was killed as it wrote"
            else:
                follows = line.pop("before", None) == _digest(last)
                yield (
                    line,
                    "" if follows else f"{where} does not follow from the one before: the log was changed",
                )
            last = content


def audit_log_of(folder: Path) -> AuditLog | None:
    """Returns the log of a deployment's or a site's folder, or None for a folder that is neither."""
    if (folder / "deployment.toml").exists():
        return AuditLog(folder / "server")
    return AuditLog(folder) if (folder / "site.toml").exists() else None


def _last_line(file: int) -> bytes:
    """Returns the last line of an open file, with its end where it has one; nothing of an empty file."""
    start, found = os.fstat(file).st_size, b""
    while start > 0 and b"\n" not in found[:-1]:
        before = max(0, start - BLOCK)
        found = os.pread(file, start - before, before) + found
        start = before
    return found[found.rfind(b"\n", 0, -1) + 1 :]


def _digest(line: bytes | None) -> str:
    return BEGINNING if line is None else hashlib.sha256(line).hexdigest()
