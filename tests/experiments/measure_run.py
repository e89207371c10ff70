"""A program for the tests of memory and time: one run in a process of its own, measured after every round.

    python measure_run.py '{"method": ..., "out": ..., ...}'

The keys are the arguments of `idiolect.run`.  The one line of output holds, by round, the seconds it took, those the
processor worked for it, and the resident bytes after it; the most resident bytes ever; and what the watcher was told.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch

from idiolect.experiments import Silent, run


class Gauge(Silent):
    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.busy: list[float] = []
        self.resident: list[int] = []
        self.said: list[str] = []

    def begin(self, label: str, rounds: int, done: int) -> None:
        self.ready = resident()
        self.last = time.perf_counter(), time.process_time()

    def advance(self, rounds_done: int, numbers: dict[str, float]) -> None:
        now = time.perf_counter(), time.process_time()
        if rounds_done > len(self.seconds):  # the end of the run is told as well
            self.seconds.append(now[0] - self.last[0])
            self.busy.append(now[1] - self.last[1])
            self.resident.append(resident())
        self.last = time.perf_counter(), time.process_time()

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    hint = say


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def most_resident() -> int:
    """Of this program alone: getrusage remembers the process that started it."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    gauge = Gauge()
    began = time.perf_counter()
    run(**json.loads(sys.argv[1]), watcher=gauge)
    found = {
        "seconds": gauge.seconds,
        "busy": gauge.busy,
        "resident": gauge.resident,
        "ready": gauge.ready,
        "peak": most_resident(),
        "said": gauge.said,
        "total": time.perf_counter() - began,
    }
    print(json.dumps(found))
