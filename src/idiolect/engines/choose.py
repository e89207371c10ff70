"""Engines by name."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch

from idiolect.core import Program, Tree
from idiolect.engines.cohort import Cohort
from idiolect.engines.evaluation import Logits
from idiolect.engines.group import Outcome
from idiolect.engines.loop import Loop
from idiolect.engines.pool import Pool
from idiolect.engines.workload import Workload
from idiolect.errors import UserError, unknown_name

__all__ = ["ENGINES", "Engine", "Where", "choose_engine", "place"]


class Engine(Protocol):
    """Ways to execute the same round; all agree on the numbers."""

    def round(
        self, program: Program, server: Tree, privates: dict[int, Tree], observe: bool
    ) -> list[Outcome]: ...

    def settle(self, program: Program, phase: str, server: Tree, privates: dict[int, Tree]) -> list[Tree]: ...

    def evaluate(
        self, program: Program, server: Tree, privates: dict[int, Tree], split: str
    ) -> list[Logits]: ...

    def close(self) -> None: ...


ENGINES = {"loop": Loop, "cohort": Cohort, "pool": Pool}


class Where(NamedTuple):
    engine: str
    device: str
    reason: str


def place(engine: str, device: str) -> Where:
    """Resolves ``auto``: a GPU runs the cohort as one program, cores run a pool."""
    if engine not in ("auto", *ENGINES):
        raise unknown_name("engine", engine, ["auto", *ENGINES])
    if device not in ("auto", "cpu", "cuda"):
        raise unknown_name("device", device, ["auto", "cpu", "cuda"])
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("device cuda was asked for but PyTorch sees no CUDA GPU here; use --device cpu")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() and engine in ("auto", "cohort") else "cpu"
    if engine == "pool" and torch.cuda.is_available():
        raise UserError(
            "the engine pool forks, which PyTorch does not allow beside a visible GPU; use --engine cohort or loop, "
            "or start with CUDA_VISIBLE_DEVICES= to hide it"
        )
    if engine != "auto":
        return Where(engine, device, "as asked")
    if device == "cuda":
        return Where("cohort", device, "a GPU runs a whole cohort at once")
    if torch.cuda.is_available():
        return Where("loop", device, "one client at a time, because pool cannot fork beside a visible GPU")
    cores = len(os.sched_getaffinity(0))
    return Where("pool", device, "one worker process" + (f" for each of {cores} cores" if cores > 1 else ""))


def choose_engine(where: Where, work: Workload, say: Callable[[str], None] = lambda sentence: None) -> Engine:
    """Args:
    say: hears what the user should know, such as a worker that was replaced.
    """
    if where.engine == "pool":
        return Pool(work, say=say)
    return ENGINES[where.engine](work)
