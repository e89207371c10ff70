"""The process of a site: opens its folder, starts a SuperNode, answers letters, starts it again when it is lost."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from idiolect.deploy.plan import read_site
from idiolect.deploy.site import Site
from idiolect.deploy.supernode import SuperNode
from idiolect.errors import UserError

__all__ = ["run_site"]

PAUSE = 3.0  # seconds before a SuperNode that ended is started again
SHORT = 20.0  # seconds: one that ends sooner than this three times in a row was refused
LIVES = 3


def run_site(folder: Path, say: object = print) -> None:
    """Serves until it is told to end.

    Raises:
        UserError: the folder is unusable, or the server refuses this site.
    """
    config = read_site(folder)
    with _alone(config.folder):
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
        site = Site.open(folder)
        signal.signal(signal.SIGTERM, _leave)
        quick = 0
        while True:
            began, node = time.monotonic(), SuperNode.start(config)
            print(f"{config.name} connects to {config.address}", flush=True)
            try:
                node.serve(site.reply)
            finally:
                node.stop()
            quick = quick + 1 if time.monotonic() - began < SHORT else 0
            if quick >= LIVES:
                raise UserError(
                    f"the server at {config.address} refuses {config.name}, or its certificate is not that of "
                    f"{config.folder / 'ca.crt'}: {_last_words(node.log)} (more in {node.log})"
                )
            time.sleep(PAUSE)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process for a site: two would write one store."""
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"the site in {folder} runs already") from None
        yield


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _last_words(log: Path) -> str:
    """The last line in a SuperNode's log that says something."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()[-40:] if line.strip()]
    telling = [line for line in lines if "rror" in line or "ertificate" in line or "code" in line]
    return (telling or lines or ["no word of it"])[-1][:200]


def main() -> None:
    try:
        run_site(Path(sys.argv[1]))
    except UserError as error:
        print(f"idiolect: {error}", file=sys.stderr, flush=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
