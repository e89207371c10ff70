"""Progress of a run: the watcher that receives it, such as a progress bar, and one that ignores it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Silent", "Watcher"]


class Watcher(Protocol):
    """Receives the progress of runs."""

    def begin(self, label: str, rounds: int, done: int) -> None:
        """A run starts, or continues after ``done`` rounds."""

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        """A round is over; ``numbers`` are the current loss and accuracies."""

    def end(self) -> None:
        """The run is over."""

    def say(self, sentence: str) -> None:
        """Receives a sentence that the user should read in any case."""

    def hint(self, sentence: str) -> None:
        """Receives a sentence for a user who is watching, such as on a terminal."""


class Silent:
    """A watcher that ignores everything."""

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
