"""Finds the finished runs in folders, and reports what it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from idiolect.errors import UserError
from idiolect.records import Run, divergence_of, folders_of_runs, read_run
from idiolect.reports.run_groups import group_runs
from idiolect.statistics import client_scores, replicate_of

__all__ = ["gather"]


def gather(places: Iterable[str | Path], say: Callable[[str], None]) -> list[Run]:
    """Reads every finished run in the folders and their subfolders, each only once.

    Args:
        places: runs, or folders that hold runs at any depth.
        say: gets one sentence for each folder that is left out.

    Raises:
        UserError: there is no finished run.
    """
    where = [Path(place) for place in places]
    folders: dict[Path, Path] = {}
    for place in where:
        for folder in _found(place, say):
            folders.setdefault(folder.resolve(), folder)
    runs: dict[tuple[str, int, int], Run] = {}
    for folder in folders.values():
        try:
            run = _sound(folder)
        except UserError as error:
            say(f"{error}; it is left out")
            continue
        if run.manifest.get("kind") == "study":
            say(f"{folder} is a study, which has a figure of its own, and is left out")
            continue
        family = str(run.manifest.get("family_hash") or run.manifest["name"])
        first = runs.setdefault((family, *replicate_of(run)), run)
        if first is not run:
            say(f"{folder} repeats the run {first.manifest['name']} and is left out")
    if not runs:
        raise UserError(f"no finished run in {', '.join(map(str, where)) or 'an empty list of folders'}")
    return list(runs.values())


def _found(place: Path, say: Callable[[str], None]) -> list[Path]:
    try:
        found = list(folders_of_runs(place)) if place.is_dir() else []
    except OSError as error:
        say(f"{error.filename or place} cannot be read ({error.strerror}); {place} is left out")
        return []
    if not found:
        say(f"{place} {'holds no run' if place.is_dir() else 'is not a folder'} and is left out")
    return found


def _sound(folder: Path) -> Run:
    """Returns a run whose manifest and tables the reports can use."""
    try:
        run = read_run(folder)
        group_runs([run])
        if divergence_of(run.manifest) is None:
            client_scores(run)
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder} is damaged: its manifest does not describe a run ({error})") from error
    return run
