"""What the server remembers between its starts beside checkpoints: how often it started, and its last rollback."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from idiolect.records import read_json_object, write_atomically

__all__ = ["ServerMemory", "begin_era", "count_start"]

MEMORY = "memory.json"
MOST_STARTS = 10**9  # of a server; a file that says more is damaged


class ServerMemory(NamedTuple):
    """Args:
    start: the number of this start; requests are numbered within it, so that none is ever repeated.
    era: names the last rollback, or damage to this file; empty before the first.
    """

    start: int = 0
    era: str = ""


def count_start(folder: Path, say: Callable[[str], None]) -> ServerMemory:
    """Counts a start of the server in its folder.

    Args:
        say: is told of a damaged file, which costs nothing: sites say what they have accepted when they are greeted,
            and a new era begins, so that none keeps what came before a rollback that the file named.
    """
    found = _read(folder, say)
    return _write(folder, found._replace(start=found.start + 1))


def begin_era(folder: Path, say: Callable[[str], None]) -> ServerMemory:
    """Notes a rollback, which sites follow when they are asked next."""
    return _write(folder, _read(folder, say)._replace(era=_new_era()))


def _read(folder: Path, say: Callable[[str], None]) -> ServerMemory:
    path = folder / MEMORY
    try:
        found = read_json_object(path)
        start, era = found["start"], str(found["era"])
        if type(start) is not int or not 0 <= start <= MOST_STARTS:
            raise ValueError(f"a server has started a whole number of times up to {MOST_STARTS}")
        return ServerMemory(start, era)
    except FileNotFoundError:
        return ServerMemory()
    except (OSError, ValueError, KeyError):
        path.replace(path.with_suffix(".damaged"))
        say(f"{path} was damaged and is kept as {path.with_suffix('.damaged').name}; starts are counted anew")
        return ServerMemory(era=_new_era())


def _new_era() -> str:
    return secrets.token_hex(8)


def _write(folder: Path, memory: ServerMemory) -> ServerMemory:
    write_atomically(folder / MEMORY, json.dumps(memory._asdict()))
    return memory
