"""The command line and real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from idiolect.deploy.configuration import Deployment
from idiolect.deploy.processes import running
from idiolect.deploy.status import status

from ..child_process import child_process

PATIENCE = 600.0  # seconds in which anything must come; a machine with much else to do needs them


def idiolect(*words: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which leaves what it starts to the system."""
    return subprocess.run(
        [sys.executable, "-m", "idiolect", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def up(deployment: Deployment, sites: int = 3) -> None:
    done = idiolect("deploy", "up", deployment.folder, "--local", sites)
    assert done.returncode == 0, done.stderr


def start_run(deployment: Deployment) -> AbstractContextManager[subprocess.Popen[str]]:
    """`deploy run` in the background, for as long as the block."""
    words = [sys.executable, "-m", "idiolect", "deploy", "run", str(deployment.folder)]
    return child_process(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill(deployment: Deployment, name: str) -> None:
    """kill -9 of the server or a site."""
    os.kill(running(deployment)[name], signal.SIGKILL)
    wait_for(lambda: name not in running(deployment), f"the end of {name}")


def wait_for(holds: Callable[[], bool], what: str, seconds: float = PATIENCE, pause: float = 0.1) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"waited {seconds} seconds for {what}"
        time.sleep(pause)


def site_says(deployment: Deployment, site: int, words: str) -> Callable[[], bool]:
    log = deployment.site_folder(deployment.sites[site]) / "site.log"
    return lambda: log.exists() and words in log.read_text()


def is_at(deployment: Deployment, round: int) -> Callable[[], bool]:
    return lambda: status(deployment)["round"] >= round


def logs_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.log"))
