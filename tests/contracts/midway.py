"""States of methods midway through a run, and what engines make of them, made once for all tests."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor

from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.testing.midway import Midway

from .tiny import make_engine, setting_of

__all__ = ["Midway", "answers", "midway"]


class Answers(NamedTuple):
    found: dict[str, dict[int, Any]]
    inputs_before: dict[tuple[str, ...], Tensor]
    inputs_after: dict[tuple[str, ...], Tensor]


@lru_cache(maxsize=4)
def midway(method: str, rounds_done: int = 2, **settings: Any) -> Midway:
    """Shared by tests, which must leave it as it is."""
    setting = setting_of(method, **settings)
    simulation = Simulation.start(setting, make_engine("loop", setting))
    for _ in range(rounds_done):
        simulation.advance()
    return Midway.of(simulation)


@lru_cache(maxsize=8)
def answers(method: str, engine: str, backwards: bool = False) -> Answers:
    """What an engine makes of the midway state, asked about the clients in order or backwards."""
    at = midway(method)
    asked = at.among(reversed(at.privates)) if backwards else at
    worker = make_engine(engine, at.setting)
    before = at.inputs()
    try:
        found = asked.ask(worker)
    finally:
        worker.close()
    return Answers(found, before, at.inputs())
