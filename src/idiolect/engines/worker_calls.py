"""One call of an engine for some clients, as it travels to a worker process and is answered there."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from idiolect.core import Clock, Program, Stage, Tree
from idiolect.engines.balance import balanced_hands, hands_of
from idiolect.engines.cohort.cpu.traced_stages import tracing_pays
from idiolect.engines.cohort.engine import CohortEngine
from idiolect.engines.loop import LoopEngine
from idiolect.engines.workload import Workload
from idiolect.errors import UserError

__all__ = [
    "TRIES",
    "Call",
    "amounts",
    "answer",
    "answer_or_error",
    "batches_well",
    "hands_for",
    "worker_engine",
]

HANDS_ONE_BY_ONE = 16  # of each worker at most: many, so that all workers end together
TRIES = 3  # of the same clients, whose worker died, before the run is given up


class Call(NamedTuple):
    name: str  # a method of the engine: round, settle or evaluate
    clock: Clock
    option: Any  # observe, phase or split


def batches_well(work: Workload, program: Program) -> bool:
    """Whether a core is faster with many clients at once.

    Without convolutions it is, where clients are of about equal size or the run is long enough to trace its steps.
    """
    convolutional = program.task.structure.convolutional
    return tracing_pays(program) or (work.is_even and not convolutional)


def worker_engine(work: Workload, program: Program) -> LoopEngine | CohortEngine:
    """The engine inside a worker process; a GPU always runs its clients at once."""
    return CohortEngine(work) if work.y.is_cuda or batches_well(work, program) else LoopEngine(work)


def amounts(work: Workload, program: Program, call: Call, clients: Iterable[int]) -> dict[int, int]:
    """How much a call asks of each client: steps of training, or examples to look at."""
    if call.name == "evaluate":
        return {client: len(getattr(work.federation.clients[client], call.option)) for client in clients}
    stages = _stages(replace(program, clock=call.clock), call)
    return {client: sum(work.steps(program, stage, client) for stage in stages) for client in clients}


def hands_for(
    work: Workload, program: Program, call: Call, clients: Iterable[int], workers: int
) -> list[list[int]]:
    """The clients of a call in the order in which workers take them, each as many at once as it is faster with."""
    amount = amounts(work, program, call, clients)
    if batches_well(work, program):
        return balanced_hands(amount, workers)
    return hands_of(amount, HANDS_ONE_BY_ONE * workers)


def _stages(program: Program, call: Call) -> tuple[Stage, ...]:
    plan = program.method.plan(program.scene, program.clock)
    if call.name == "round":
        return plan.before + plan.after
    return plan.merged if call.option == "merged" else plan.end


def answer(
    engine: LoopEngine | CohortEngine,
    program: Program,
    call: Call,
    server: Tree,
    privates: Mapping[int, Tree],
) -> Sequence[Any]:
    """What the engine says to the call, in the order of ``privates``."""
    program = replace(program, clock=call.clock)
    if call.name == "round":
        return engine.round(program, server, privates, call.option)
    if call.name == "settle":
        return engine.settle(program, call.option, server, privates)
    return engine.evaluate(program, server, privates, call.option)


def answer_or_error(function: Any, *arguments: Any) -> Any:
    """What a function gives, or an error that survives the way to another process, with where it came from."""
    try:
        return function(*arguments)
    except UserError as error:
        return error
    except Exception as error:
        return RuntimeError(f"{error}\n{traceback.format_exc()}")
