"""The batches that the plain loop reads: the same rows as an engine's, looked up before the clock starts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from idiolect.core import Program, Stage
from idiolect.experiments import Setting
from idiolect.federation import select

__all__ = [
    "PlainBatch",
    "PlainBatches",
    "blocks_of",
    "cohort_of",
    "end_batches",
    "round_batches",
    "steps_of_round",
]


class PlainBatch(NamedTuple):
    """One batch: its row numbers in the data, and the random draws of the step by part."""

    rows: Tensor
    draws: dict[str, Tensor]


PlainBatches = dict[int, dict[str, list[PlainBatch]]]  # by client, by stage


def cohort_of(setting: Setting, round: int) -> list[int]:
    experiment, population = setting.experiment, setting.federation.population
    rate, how = experiment.participation_rate, experiment.selection
    return select(rate, population, seed=experiment.seed, round=round, selection=how)


def blocks_of(setting: Setting) -> list[slice]:
    """Returns one contiguous slice of images per client, as long as its training part."""
    starts = [int(min(map(np.min, filter(len, rows)))) for rows in setting.federation.clients]
    sizes = [len(rows.train) for rows in setting.federation.clients]
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def round_batches(setting: Setting, round: int) -> PlainBatches:
    """Returns the batches of the cohort's stages, and those of every client's stages after the merge."""
    program = setting.program(round)
    plan = program.method.plan(program.scene, program.clock)
    everyone = range(setting.federation.population) if plan.merged else ()
    found = {client: _stages(setting, program, plan.merged, client) for client in everyone}
    for client in cohort_of(setting, round):
        trained = _stages(setting, program, plan.before + plan.after, client)
        found[client] = {**trained, **found.get(client, {})}
    return found


def end_batches(setting: Setting, round: int) -> PlainBatches:
    """Returns every client's batches in the stages at the end of the run."""
    program = setting.program(round)
    stages = program.method.plan(program.scene, program.clock).end
    return {c: _stages(setting, program, stages, c) for c in range(setting.federation.population)}


def steps_of_round(setting: Setting, round: int, phase: str) -> int:
    """Returns how many optimisation steps an engine plans for a round, or for the ``end`` of the run."""
    program = setting.program(round)
    plan = program.method.plan(program.scene, program.clock)
    if phase == "end":
        clients, stages = list(range(setting.federation.population)), plan.end
    else:
        clients, stages = cohort_of(setting, round), plan.before + plan.after
    trained = [stage for stage in stages if stage.measure is None]
    return sum(setting.work.steps(program, stage, client) for stage in trained for client in clients)


def _stages(
    setting: Setting, program: Program, stages: tuple[Stage, ...], client: int
) -> dict[str, list[PlainBatch]]:
    return {stage.name: _batches(setting, program, stage, client) for stage in stages}


def _batches(setting: Setting, program: Program, stage: Stage, client: int) -> list[PlainBatch]:
    plan, draws = setting.work.plan(program, stage, client)
    like = setting.work.x
    return [
        PlainBatch(
            torch.from_numpy(rows[real]).to(like.device),
            {part: torch.from_numpy(drawn[t]).to(like) for part, drawn in draws.items()},
        )
        for t, (rows, real) in enumerate(zip(plan.index, plan.mask, strict=True))
    ]
