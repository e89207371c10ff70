"""The worker process of a row: it prepares an engine or a plain loop once, then makes a round whenever it is asked.

``python -m idiolect.bench.worker`` reads a row and then commands: ``turn`` makes one timed round, or the end of the
run; ``save`` writes the shared model, to compare it; ``sway`` writes the plain loop's model after a round from a
perturbed start; ``count`` counts the work of one round of the plain loop.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from idiolect.bench.machine_peaks import cuda_peak, measure_peaks, synchronise
from idiolect.bench.native_network import values
from idiolect.bench.plain_loop_batches import PlainBatches, end_batches, round_batches, steps_of_round
from idiolect.bench.plain_loops import PlainLoop, PlainMethod, plain_method
from idiolect.bench.roofline import activations, count_work, traffic
from idiolect.bench.worker_protocol import BenchConnection, serve_row
from idiolect.bench.workloads import BenchCell, bench_setting
from idiolect.core import broadcast
from idiolect.engines import EngineChoice, choose_engine, place, start_early
from idiolect.errors import UserError
from idiolect.experiments import Setting, Simulation

__all__ = ["EngineRunner", "PlainRunner", "Runner", "serve"]


class Runner(Protocol):
    """What a row runs.  An engine and the plain loop make the same rounds."""

    def ready(self, phase: str) -> None:
        """Prepares what is not timed of the next round, or of the end."""

    def go(self, phase: str) -> None:
        """Makes the next round, or the end of the run."""

    def values(self) -> list[Tensor]:
        """Returns the shared model: parameters, then running statistics."""

    def close(self) -> None:
        """Ends its processes."""


class EngineRunner:
    """An engine inside a simulation: everything that a round does but evaluation is timed."""

    def __init__(self, setting: Setting, where: EngineChoice) -> None:
        self.setting = setting
        self.engine = choose_engine(where, setting.work)
        self.simulation = Simulation.start(setting, self.engine)

    def ready(self, phase: str) -> None:
        """Does nothing: planning batches is part of an engine's time."""

    def go(self, phase: str) -> None:
        simulation = self.simulation
        if phase == "round":
            simulation.advance()
            return
        program = self.setting.program(simulation.round)
        sent = broadcast(self.setting.method, simulation.server)
        population = self.setting.federation.population
        size = simulation.store.at_once(population, least=program.clock.cohort_size)
        for first in range(0, population, size):
            rows = simulation.store.together(range(first, min(first + size, population)))
            self.engine.settle(program, "end", sent, rows)

    def values(self) -> list[Tensor]:
        server = self.simulation.server
        return [*server["params"].values(), *server["buffers"].values()]

    def close(self) -> None:
        self.engine.close()


class PlainRunner:
    """A plain loop, whose batches are looked up before the clock starts."""

    def __init__(self, setting: Setting, kind: type[PlainLoop]) -> None:
        self.setting, self.plain, self.round = setting, kind(setting), 0
        self.batches: PlainBatches = {}

    def nudge(self, rounding: float, seed: int) -> None:
        """Perturbs every number of the shared model by a relative ``rounding`` of random sign."""
        random = torch.Generator().manual_seed(seed)
        for value in self.plain.shared.values():
            if value.is_floating_point():
                signs = torch.randint(2, value.shape, generator=random) * 2 - 1
                value *= 1 + rounding * signs.to(value)

    def ready(self, phase: str) -> None:
        batches = round_batches if phase == "round" else end_batches
        self.batches = batches(self.setting, self.round)

    def go(self, phase: str) -> None:
        if phase == "round":
            self.plain.round(self.batches)
            self.round += 1
        else:
            self.plain.end(self.batches)

    def values(self) -> list[Tensor]:
        self.plain.net.load_state_dict(self.plain.shared)
        return values(self.plain.net)

    def close(self) -> None:
        """Does nothing: the plain loop has no processes."""


FACTORS = {
    "float64": torch.float64,
    "bf16": torch.bfloat16,
}  # the type of matrix products, where it is not float32


def serve(cell: BenchCell, runner: str, connection: BenchConnection) -> None:
    """Answers the commands of the bench for one row until the bench hangs up."""
    if runner == "peaks":
        connection.answer(**_peaks(cell))
        while connection.next() is not None:
            connection.answer(**_peaks(cell))
        return
    entry = plain_method(cell.method)
    where = None if runner == "plain" else place(runner, cell.device)
    if where is not None:
        start_early(where)
    setting = bench_setting(cell, entry.text, where)
    facts = {"parameters": setting.n_parameters, "engine": runner, "reason": ""}
    running: Runner
    if where is None:
        running = PlainRunner(setting, entry.plain)
    else:
        facts |= {"engine": where.engine, "reason": where.reason}
        running = EngineRunner(setting, where)
    try:
        _turns(running, setting, entry, facts, connection)
    finally:
        running.close()


def _peaks(cell: BenchCell) -> dict[str, float]:
    return measure_peaks(FACTORS.get(cell.precision, torch.float32), cell.device)._asdict()


def _turns(
    running: Runner, setting: Setting, entry: PlainMethod, facts: dict[str, Any], connection: BenchConnection
) -> None:
    connection.answer(phases=entry.phases, **facts)
    made, device = 0, setting.work.device.type
    while (command := connection.next()) is not None:
        if command["do"] in ("save", "sway"):
            saved = running if command["do"] == "save" else _swayed(setting, entry, command)
            np.savez(command["path"], *(value.detach().cpu().numpy() for value in saved.values()))
            connection.answer()
            continue
        phase = command["phase"]
        steps = steps_of_round(setting, made, phase)
        if command["do"] == "count":
            assert isinstance(running, PlainRunner)
            connection.answer(**_counted(running, phase, steps))
        else:
            seconds = _timed(running, phase, device)
            connection.answer(seconds=seconds, steps=steps, cuda=cuda_peak(device))
        made += phase == "round"


def _swayed(setting: Setting, entry: PlainMethod, command: dict[str, Any]) -> PlainRunner:
    twin = PlainRunner(setting, entry.plain)
    twin.nudge(command["rounding"], command["seed"])
    twin.ready("round")
    twin.go("round")
    return twin


def _timed(running: Runner, phase: str, device: str) -> float:
    running.ready(phase)
    synchronise(device)
    began = time.perf_counter()
    running.go(phase)
    synchronise(device)
    return time.perf_counter() - began


def _counted(running: PlainRunner, phase: str, planned: int) -> dict[str, Any]:
    plain, x = running.plain, running.plain.x
    running.ready(phase)
    work = count_work(lambda: running.go(phase), plain.nets)
    if work.steps != planned:
        raise UserError(f"the plain loop made {work.steps} optimisation steps where engines plan {planned}")
    parameters = sum(p.numel() for p in plain.net.parameters())
    moved = traffic(work, parameters, activations(plain.net, x[0]), x[0].numel(), x.element_size())
    return {**dataclasses.asdict(work), "bytes": moved}


if __name__ == "__main__":
    serve_row(serve)
