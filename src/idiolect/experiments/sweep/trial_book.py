"""The trials of a sweep as a file in its folder, so that an interrupted sweep goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from idiolect.errors import UserError
from idiolect.experiments.sweep.optuna_search import KnownTrial
from idiolect.records import WriteLock, read_json_object, write_atomically

__all__ = ["BOOK", "BookedTrial", "TrialBook"]

BOOK = "trials.json"


@dataclass
class BookedTrial(KnownTrial):
    """A trial with the method that it belongs to.

    Args:
        method: the place of the method in the sweep.
        rounds: what was spent on it.
        failed: why it was refused.
        stopped: the rounds after which it was stopped early; 0 where it was not.
    """

    method: int = 0
    rounds: int = 0
    failed: str = ""
    stopped: int = 0


@dataclass
class TrialBook:
    """All trials that a sweep has begun; every change is on disk before the sweep goes on.

    One process at a time writes it.
    """

    folder: Path
    trials: list[BookedTrial] = field(default_factory=list)
    _lock: WriteLock | None = None

    @classmethod
    def open(cls, folder: Path) -> TrialBook:
        """Reads the book of a sweep, or begins one."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot make the folder {folder} ({error.strerror}); choose another place with --out"
            ) from error
        book = cls(folder, _lock=WriteLock(folder))
        if (path := folder / BOOK).exists():
            try:
                book.trials = [_trial(one) for one in read_json_object(path)["trials"]]
            except (OSError, ValueError, KeyError, OverflowError, TypeError) as error:
                raise UserError(
                    f"{path} cannot be read ({error}); remove it, and finished runs are read again"
                ) from None
        return book

    def begin(self, method: int, point: dict[str, Any]) -> BookedTrial:
        """Adds the next trial of a method."""
        trial = BookedTrial(len(self.of(method)), point, method=method)
        self.trials.append(trial)
        self.save()
        return trial

    def of(self, method: int) -> list[BookedTrial]:
        """Returns the trials of a method, in their order."""
        return sorted((one for one in self.trials if one.method == method), key=lambda one: one.number)

    def find(self, method: int, number: int) -> BookedTrial:
        return next(one for one in self.trials if (one.method, one.number) == (method, number))

    def save(self) -> None:
        lines = ",\n".join(json.dumps(_plain(one)) for one in self._in_order())
        write_atomically(self.folder / BOOK, f'{{"format": 1, "trials": [\n{lines}\n]}}\n')

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _in_order(self) -> Iterable[BookedTrial]:
        return sorted(self.trials, key=lambda one: (one.method, one.number))


def _plain(trial: BookedTrial) -> dict[str, Any]:
    return {**vars(trial), "curve": sorted(trial.curve.items())}


def _trial(found: dict[str, Any]) -> BookedTrial:
    return BookedTrial(**{**found, "curve": {int(round): float(value) for round, value in found["curve"]}})
