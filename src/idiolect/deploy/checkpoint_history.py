"""Earlier checkpoints of the server, to which a rollback can go back.

After every round the files of the run's checkpoint are linked into ``history/<round>`` of the server's folder, where
the last few rounds stay.  Checkpoint files are replaced and never changed, so a link costs no space and no time.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

__all__ = ["keep_checkpoint", "put_back", "rounds_kept"]

HISTORY, FILES = "history", "checkpoint-*"


def keep_checkpoint(server: Path, run: Path, round: int, most: int) -> None:
    """Keeps the checkpoint of a round, and forgets all but the last ``most`` rounds.

    Args:
        server: the server's folder.
        run: the folder of the run, whose newest checkpoint is that of the round.
    """
    history, new = server / HISTORY, server / HISTORY / "new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for path in run.glob(FILES):
        _link(path, new / path.name)
    shutil.rmtree(history / str(round), ignore_errors=True)
    new.rename(history / str(round))
    kept = rounds_kept(server)
    for other in kept:
        if other > round or other not in [one for one in kept if one <= round][-most:]:
            shutil.rmtree(history / str(other))


def rounds_kept(server: Path) -> list[int]:
    """Returns the rounds whose checkpoints are kept, in order."""
    return sorted(int(path.name) for path in (server / HISTORY).glob("*") if path.name.isdigit())


def put_back(server: Path, run: Path, round: int) -> None:
    """Makes the checkpoint of a round that of the run again; round 0 is before the first checkpoint."""
    kept = {path.name: path for path in (server / HISTORY / str(round)).glob(FILES)}
    for name, path in kept.items():
        new = run / f".{name}.tmp"
        new.unlink(missing_ok=True)
        _link(path, new)
        new.replace(run / name)
        new.unlink(missing_ok=True)  # a rename onto another link of the same file does nothing
    for path in sorted(run.glob(FILES), reverse=True):
        if path.name not in kept:
            path.unlink()
    for later in rounds_kept(server):
        if later > round:
            shutil.rmtree(server / HISTORY / str(later))


def _link(path: Path, other: Path) -> None:
    """Links a file, or copies it where the file system has no links."""
    try:
        os.link(path, other)
    except OSError:
        shutil.copy2(path, other)
