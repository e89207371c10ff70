"""A run that is killed at any moment goes on as if it had not been, at once, on every engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from idiolect.errors import UserError
from idiolect.records import WriteLock

from ..child_process import child_process, children_of, is_running
from ..ray_nodes import head_node
from .test_private_state import PERSFL, program


@pytest.mark.parametrize(
    ("method", "store", "cache", "every"),
    [
        ("fedper", "disk", 0.002, 97),
        ("fedper", "host", 0, 131),
        (PERSFL, "disk", 0.002, 151),
        pytest.param("fedper", "disk", 0, 1, marks=pytest.mark.slow),
        pytest.param("fedper", "host", 0, 1, marks=pytest.mark.slow),
        pytest.param(PERSFL, "disk", 0.002, 3, marks=pytest.mark.slow),
    ],
)
def test_killed_before_any_call_of_the_system(
    method: str, store: str, cache: float, every: int, tmp_path: Path
) -> None:
    found = program("kill_and_resume.py", "calls", str(tmp_path), method, store, str(cache), str(every))
    assert found["calls"] > 100 and found["different"] == []
    assert found["kills"] >= (100 if every == 1 else 2)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["loop", "cohort", "pool"])
def test_killed_forty_times_at_random(engine: str, tmp_path: Path) -> None:
    """Every process goes on at once, while workers of the one that was killed may still be there."""
    found = program("kill_and_resume.py", "random", str(tmp_path), "fedper", engine, "40")
    assert found["kills"] == 40 and found["different"] == []


@pytest.mark.slow
def test_killed_forty_times_at_random_on_ray(tmp_path: Path) -> None:
    """Ten runs take their clusters along; thirty leave theirs, and their workers in it, to the run that goes on.

    To start a cluster takes longer than the run, and what is left of those that were killed stays up to a minute.
    """
    pytest.importorskip("ray")
    asked = ["kill_and_resume.py", "random", str(tmp_path / "own"), "fedper", "ray"]
    own = program(*asked, "10")
    asked[2] = str(tmp_path / "shared")
    with head_node(26380, "--num-cpus=2") as address:
        shared = program(*asked, "30", address)
    assert own["kills"] == 10 and shared["kills"] == 30
    assert own["different"] == shared["different"] == []


def test_killed_twice_at_random(tmp_path: Path) -> None:
    found = program("kill_and_resume.py", "random", str(tmp_path), "fedper", "loop", "2")
    assert found["kills"] == 2 and found["different"] == []


# ---- the lock of a run is its process's alone

FORKING = """
import os, sys, time
from pathlib import Path
from idiolect.errors import UserError
from idiolect.records import WriteLock
lock = WriteLock(Path(sys.argv[1]))
if os.fork() == 0:
    print(os.getpid(), flush=True)
    time.sleep(600)
time.sleep(600)
"""


def test_a_fork_of_a_killed_process_does_not_hold_its_lock(tmp_path: Path) -> None:
    words = [sys.executable, "-c", FORKING, str(tmp_path)]
    with child_process(words, stdout=subprocess.PIPE, text=True) as writer:
        fork = int(writer.stdout.readline())
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        assert is_running(fork)
        WriteLock(tmp_path).release()


def test_workers_of_a_killed_pool_do_not_hold_its_run(tmp_path: Path) -> None:
    """The lock goes with the open folder, which the run has open and no process that it has started."""
    words = ["-m", "idiolect", "run", "--method", "fedavg", "--rounds", "100000", "--engine", "pool"]
    words += ["--workers", "2", "--out", str(tmp_path), "--set", "evaluate_every=100000", "--quick"]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with child_process([sys.executable, *words], **silent) as run:
        server = _wait_for(lambda: [one for one in children_of(run.pid) if len(children_of(one)) == 2])[0]
        (folder,) = _wait_for(lambda: list(tmp_path.glob("*.partial")))
        _wait_for(lambda: folder in open_in(run.pid))
        with pytest.raises(UserError, match="being written by another process"):
            WriteLock(folder)
        assert all(folder not in open_in(process) for process in (server, *children_of(server)))
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        WriteLock(folder).release()


def open_in(process: int) -> set[Path]:
    """The files and folders that a process has open."""
    return {file.readlink() for file in Path(f"/proc/{process}/fd").iterdir() if file.is_symlink()}


def _wait_for(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 100
    while not (result := found()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return result
