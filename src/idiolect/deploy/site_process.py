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

from idiolect.deploy.disclosure import individual_uploads
from idiolect.deploy.plan import read_site
from idiolect.deploy.site import Site
from idiolect.deploy.supernode import SuperNode
from idiolect.errors import UserError

__all__ = ["run_site"]

PAUSE = 2.0  # seconds before a SuperNode that ended is started again
REFUSALS = 3  # in a row, after which the site gives up


def run_site(folder: Path) -> None:
    """Serves until it is told to end.

    Raises:
        UserError: the folder is unusable, or the server refuses this site.
    """
    config = read_site(folder)
    with _alone(config.folder):
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // 2))
        site = Site.open(folder, _say)
        if sentence := individual_uploads(site.setting.method):
            _say(f"note: {sentence}")
        signal.signal(signal.SIGTERM, _leave)
        refusals: list[str] = []
        while len(refusals) < REFUSALS:
            node = SuperNode.start(config)
            _say(f"{config.name} connects to {config.address}")
            try:
                node.serve(site.reply)
            finally:
                node.stop()
            refusals = [*refusals, refusal] if (refusal := node.refusal()) else []
            time.sleep(PAUSE)
        raise UserError(
            f"{config.name} and the server at {config.address} do not agree to connect: {refusals[-1]} ({node.log})"
        )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process for a site: two would write one store."""
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"the site in {folder} runs already") from None
        yield


def _say(sentence: str) -> None:
    print(sentence, flush=True)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def main() -> None:
    try:
        run_site(Path(sys.argv[1]))
    except UserError as error:
        print(f"idiolect: {error}", file=sys.stderr, flush=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
