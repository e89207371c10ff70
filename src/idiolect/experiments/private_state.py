"""Where a run keeps its private state, decided before it starts."""

from __future__ import annotations

from pathlib import Path

from idiolect.experiments.progress import Watcher
from idiolect.experiments.setting import Setting
from idiolect.federation import (
    Demand,
    Placement,
    RowFormat,
    Store,
    choose_store,
    cohort_size,
    open_store,
)

__all__ = ["announce", "demand_of", "open_private_state", "place_private_state"]

PHASES = (
    4  # of each round that ``private_shapes`` tries: at first, after training, after the merge, at the end
)


def demand_of(setting: Setting, checkpoint_every: int) -> Demand:
    """The most that private state can come to, in memory and, with what the last two checkpoints need, on disk."""
    experiment, population = setting.experiment, setting.federation.population
    program = setting.program(experiment.rounds - 1)
    plan = program.method.plan(program.scene, program.clock)
    cohort = cohort_size(experiment.participation_rate, population)
    in_rounds = population if plan.merged else min(population, cohort * experiment.rounds)
    changed = population if plan.merged else min(population, cohort * checkpoint_every)
    sizes = [RowFormat([tree]).row_bytes for tree in setting.private_shapes]
    during = max(size for phase, size in enumerate(sizes) if phase % PHASES != PHASES - 1)
    if plan.end:
        return Demand(max(sizes), population, population, during * (changed + in_rounds))
    return Demand(during, population, in_rounds, during * 2 * changed)


def place_private_state(
    setting: Setting, folder: Path, checkpoint_every: int, store: str, store_cache: float | None
) -> Placement:
    """Raises:
    UserError: the disk of ``folder`` is too small.
    """
    device = setting.work.device.type
    demand = demand_of(setting, checkpoint_every)
    return choose_store(demand, folder, kind=store, device=device, cache_mb=store_cache)


def announce(placement: Placement, watcher: Watcher) -> None:
    """Says how much private state there can be; a run without any says nothing."""
    if placement.demand.row_bytes:
        tell = watcher.say if placement.kind == "disk" else watcher.hint
        tell(placement.sentence())


def open_private_state(setting: Setting, placement: Placement, folder: Path) -> Store:
    return open_store(placement, setting.first_private, setting.private_shapes, folder)
