"""Runs in this process compute with one thread."""

from __future__ import annotations

import torch

from idiolect.experiments import Silent

torch.set_num_threads(1)


class Listener(Silent):
    """Keeps what it is told, and interrupts a run when so many rounds are done."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.heard: list[str] = []

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        if rounds_done == self.stop_after:
            raise KeyboardInterrupt

    def say(self, sentence: str) -> None:
        self.heard.append(sentence)
