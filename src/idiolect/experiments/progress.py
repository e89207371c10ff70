"""Whoever wants to watch a run: a progress bar, a log, nobody."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Silent", "Watcher"]


class Watcher(Protocol):
    def begin(self, label: str, rounds: int, done: int) -> None:
        """A run starts, or goes on after ``done`` rounds."""

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        """A round is over; ``numbers`` are the current loss and accuracies."""

    def end(self) -> None:
        """The run is over."""

    def say(self, sentence: str) -> None:
        """Something worth a line."""

    def hint(self, sentence: str) -> None:
        """Something worth a line to somebody who is looking on."""


class Silent:
    """Nobody watches."""

    def begin(self, label: str, rounds: int, done: int) -> None:
        pass

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        pass

    def end(self) -> None:
        pass

    def say(self, sentence: str) -> None:
        pass

    def hint(self, sentence: str) -> None:
        pass
