"""Where a peer that runs its own loop of rounds waits for the bench."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from torch import nn

from idiolect.bench.machine import cuda_peak, synchronise
from idiolect.bench.native import values
from idiolect.bench.process import Process
from idiolect.bench.turnstile import Turnstile
from idiolect.bench.work import Work

__all__ = ["Gate"]


class Gate:
    """Answers for the round that is over and lets the next one begin when it is asked for.

    Args:
        net: holds the shared model between rounds.
        others: the processes that train the rest of the cohort; they are told of every round.

    Attributes:
        work: where the peer's local steps are counted.
        rounds: that are over.
    """

    def __init__(self, turnstile: Turnstile, net: nn.Module, device: str, others: list[Process]) -> None:
        self.turnstile, self.net, self.device, self.others = turnstile, net, device, others
        self.work, self.began, self.counted, self.rounds = Work(), 0.0, 0, 0

    def open(self, **facts: Any) -> None:
        """Says what the row is and waits for its first round."""
        for other in self.others:
            other.answer()
        self.turnstile.answer(phases=["round"], **facts)
        self.wait()

    def turn(self) -> bool:
        """The end of a round; whether there is another."""
        synchronise(self.device)
        seconds = time.perf_counter() - self.began
        steps, self.counted = self.work.steps - self.counted, self.work.steps
        self.rounds += 1
        steps += sum(other.answer()["steps"] for other in self.others)
        self.turnstile.answer(seconds=seconds, steps=steps, cuda=cuda_peak(self.device))
        return self.wait()

    def wait(self) -> bool:
        """Whether another round was asked for."""
        while (command := self.turnstile.next()) is not None and command["do"] == "save":
            np.savez(command["path"], *(value.detach().cpu().numpy() for value in values(self.net)))
            self.turnstile.answer()
        self.began = time.perf_counter()
        for other in self.others:
            if command is None:
                other.hang_up()
            else:
                other.tell(command)
        return command is not None
