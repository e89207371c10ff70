"""The heartbeat of a site: a file in its folder that says it lives, and when the server answered it last.

A process that is there may hang, and a site that works may not reach its server.  ``deploy up`` and ``deploy status``
read the heartbeat and do not take a process for a connection.  Times are seconds since this machine started, so a
clock that is set makes nobody late.
"""

from __future__ import annotations

import json
import math
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from idiolect.records import read_json_object, write_atomically

__all__ = ["HANGS", "beating", "condition", "server_answers"]

HEARTBEAT = "heartbeat.json"
BEAT_SECONDS = 5.0  # between two beats
PROBE_SECONDS = 10.0  # that the server has to answer
LATE_SECONDS = 45.0  # without a beat a site hangs, and without an answer it is not connected
HANGS = "hangs"


@contextmanager
def beating(folder: Path, answers: Callable[[], bool]) -> Iterator[None]:
    """Writes the heartbeat of this process for as long as the block.

    Args:
        answers: asks the server once; returns whether it answered.
    """
    over = threading.Event()

    def beat() -> None:
        answered = None
        while not over.is_set():
            if answers():
                answered = time.monotonic()
            found = {"pid": os.getpid(), "at": time.monotonic(), "answered": answered}
            with suppress(OSError):  # a full disk costs this beat, and the next one is tried
                write_atomically(folder / HEARTBEAT, json.dumps(found))
            over.wait(BEAT_SECONDS)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(PROBE_SECONDS + BEAT_SECONDS)


def server_answers(address: str, authority: Path | None) -> Callable[[], bool]:
    """Returns a function that asks the server at ``address`` for any answer at the sites' interface.

    Args:
        authority: the certificate of the deployment's authority; none where connections are plain.
    """
    trust = ssl.create_default_context(cafile=str(authority)) if authority else True
    url = f"{'https' if authority else 'http'}://{address}/v1/fleet/"

    def ask() -> bool:
        try:
            httpx.get(url, verify=trust, timeout=PROBE_SECONDS)
        except (httpx.HTTPError, OSError):
            return False
        return True

    return ask


def condition(folder: Path, process: int) -> str:
    """Returns in words how the process of a site is: connected, not connected, starting, or hanging."""
    try:
        found = read_json_object(folder / HEARTBEAT)
        pid, at, answered = found["pid"], float(found["at"]), found["answered"]
        silent = math.inf if answered is None else time.monotonic() - float(answered)
    except (OSError, ValueError, TypeError, KeyError, OverflowError):  # there is none yet, or it is damaged
        return "starts"
    if pid != process:
        return "starts"
    if time.monotonic() - at > LATE_SECONDS:
        return HANGS
    if math.isinf(silent):
        return "not connected: the server has not answered yet"
    if silent > LATE_SECONDS:
        return f"not connected: the server has not answered for {silent:.0f} s"
    return "connected"
