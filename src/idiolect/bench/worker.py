"""A row's own process: it prepares once, then makes a round whenever the bench asks for one.

``python -m idiolect.bench.worker`` reads commands from standard input: first the row, then ``turn`` (one timed round,
or the end of the run), ``save`` (the shared model, to compare), ``sway`` (the plain loop's after a round from a start
that is rounded) and ``count`` (a round of the plain loop under hooks).
"""

from __future__ import annotations

import dataclasses
import os
import time
import traceback
from typing import Any

import numpy as np
import torch

from idiolect.bench import peer_flower, peer_pfl
from idiolect.bench.cell import Cell
from idiolect.bench.lessons import steps_of_round
from idiolect.bench.machine import cuda_peak, measure_peaks, synchronise
from idiolect.bench.methods import Entry, entry_of
from idiolect.bench.runners import EngineRunner, PlainRunner, Runner
from idiolect.bench.setting import setting_of
from idiolect.bench.turnstile import Turnstile
from idiolect.bench.work import activations, count_work, traffic
from idiolect.engines import place, start_early
from idiolect.errors import UserError
from idiolect.experiments import Setting

__all__ = ["main"]

FACTORS = {"float64": torch.float64, "bf16": torch.bfloat16}  # what products are made of, if not float32
PEERS = {"pfl": peer_pfl.serve, "pfl-pair": peer_pfl.serve_pair, "flower": peer_flower.serve}


def main() -> int:
    turnstile = Turnstile.on_standard_streams()
    row = turnstile.next()
    if row is None:
        return 0
    try:
        _serve(row, turnstile)
    except UserError as error:
        turnstile.answer(error=str(error))
    except Exception as error:
        traceback.print_exc()
        turnstile.answer(error=f"{type(error).__name__}: {str(error).strip()}".splitlines()[0])
    return 0


def _serve(row: dict[str, Any], turnstile: Turnstile) -> None:
    torch.set_num_threads(row["threads"])
    cell, runner = Cell(**row["cell"]), row["runner"]
    if runner == "peaks":
        turnstile.answer(**_peaks(cell))
        while turnstile.next() is not None:
            turnstile.answer(**_peaks(cell))
        return
    if runner in PEERS:
        PEERS[runner](cell, turnstile)
        return
    entry = entry_of(cell.method)
    where = None if runner == "plain" else place(runner, cell.device)
    if where is not None:
        start_early(where)
    setting = setting_of(cell, entry.text, where)
    facts = {"parameters": setting.n_parameters, "engine": runner, "reason": ""}
    running: Runner
    if where is None:
        running = PlainRunner(setting, entry.plain)
    else:
        facts |= {"engine": where.engine, "reason": where.reason}
        running = EngineRunner(setting, where)
    try:
        _turns(running, setting, entry, facts, turnstile)
    finally:
        running.close()


def _peaks(cell: Cell) -> dict[str, float]:
    return measure_peaks(FACTORS.get(cell.precision, torch.float32), cell.device)._asdict()


def _turns(
    running: Runner, setting: Setting, entry: Entry, facts: dict[str, Any], turnstile: Turnstile
) -> None:
    turnstile.answer(phases=entry.phases, **facts)
    made, device = 0, setting.work.device.type
    while (command := turnstile.next()) is not None:
        if command["do"] in ("save", "sway"):
            saved = running if command["do"] == "save" else _swayed(setting, entry, command)
            np.savez(command["path"], *(value.detach().cpu().numpy() for value in saved.values()))
            turnstile.answer()
            continue
        phase = command["phase"]
        steps = steps_of_round(setting, made, phase)
        if command["do"] == "count":
            assert isinstance(running, PlainRunner)
            turnstile.answer(**_counted(running, phase, steps))
        else:
            seconds = _timed(running, phase, device)
            turnstile.answer(seconds=seconds, steps=steps, cuda=cuda_peak(device))
        made += phase == "round"


def _swayed(setting: Setting, entry: Entry, command: dict[str, Any]) -> PlainRunner:
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
    os._exit(main())  # what is left to tear down is memory
