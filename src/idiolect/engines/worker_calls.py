"""Calls of an engine as worker processes receive them: which clients each gets, and how a call is answered."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, ParamSpec, TypeVar

from idiolect.core import Clock, Program, ServerState, Stage, Tree
from idiolect.engines.balance import balanced_shares, equal_shares
from idiolect.engines.cohort.cpu.traced_stages import tracing_pays
from idiolect.engines.cohort.engine import CohortEngine
from idiolect.engines.contract import StagesDone, nobody
from idiolect.engines.device_data import Workload
from idiolect.engines.loop import LoopEngine
from idiolect.errors import UserError

__all__ = [
    "TRIES",
    "EngineCall",
    "amounts",
    "answer",
    "answer_or_error",
    "batches_well",
    "shares_for",
    "worker_engine",
]

SHARES_PER_WORKER = 16  # most shares where clients run one by one: with small shares workers end together
TRIES = 3  # workers that may die on the same clients before the run is given up
P = ParamSpec("P")
T = TypeVar("T")


class EngineCall(NamedTuple):
    """One call of an engine, without its clients.

    Args:
        name: the engine's method ``round``, ``settle`` or ``evaluate``; or ``fetch``, for rows that a worker keeps.
        option: the last argument of that method: ``observe``, ``phase`` or ``split``.
    """

    name: str
    clock: Clock
    option: Any


def batches_well(work: Workload, program: Program) -> bool:
    """Returns whether a core is faster with many clients at once than with one after the other.

    That holds for networks without convolutions, if clients are of about equal size or the run is long enough to trace
    its steps.
    """
    structure = program.task.structure
    return structure.batchable and (tracing_pays(program) or (work.is_even and not structure.convolutional))


def worker_engine(work: Workload, program: Program) -> LoopEngine | CohortEngine:
    """Returns the engine inside a worker process; a GPU runs its clients at once wherever the network allows it."""
    on_gpu = work.device.type == "cuda" and program.task.structure.batchable
    return CohortEngine(work) if on_gpu or batches_well(work, program) else LoopEngine(work)


def amounts(work: Workload, program: Program, call: EngineCall, clients: Iterable[int]) -> dict[int, int]:
    """Returns how much a call asks of each client: steps of training, or samples to evaluate."""
    if call.name == "evaluate":
        held = work.at(call.clock.round).federation.clients
        return {client: len(getattr(held[client], call.option)) for client in clients}
    program = replace(program, clock=call.clock)
    stages = _stages(program, call)
    return {client: sum(work.steps(program, stage, client) for stage in stages) for client in clients}


def shares_for(
    work: Workload, program: Program, call: EngineCall, clients: Iterable[int], workers: int
) -> list[list[int]]:
    """Splits the clients of a call into shares, in the order in which workers take them."""
    amount = amounts(work, program, call, clients)
    if batches_well(work, program):
        return balanced_shares(amount, workers)
    return equal_shares(amount, SHARES_PER_WORKER * workers)


def _stages(program: Program, call: EngineCall) -> tuple[Stage, ...]:
    plan = program.method.plan(program.scene, program.clock)
    if call.name == "round":
        return plan.before + plan.after
    return plan.merged if call.option == "merged" else plan.end


def answer(
    engine: LoopEngine | CohortEngine,
    program: Program,
    call: EngineCall,
    server: ServerState,
    privates: Mapping[int, Tree],
    progress: StagesDone = nobody,
) -> Sequence[Any]:
    """Returns the engine's answers to the call, in the order of ``privates``."""
    program = replace(program, clock=call.clock)
    if call.name == "round":
        return engine.round(program, server, privates, call.option)
    if call.name == "settle":
        return engine.settle(program, call.option, server, privates, progress)
    return engine.evaluate(program, server, privates, call.option)


def answer_or_error(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | Exception:
    """Returns what a function returns, or an error that can travel to another process, with its traceback as text."""
    try:
        return function(*arguments, **options)
    except UserError as error:
        return error
    except Exception as error:
        return RuntimeError(f"{error}\n{traceback.format_exc()}")
