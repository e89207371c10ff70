"""Rows of clients, their own and those of the server: how much there can be and where they lie, before a run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from idiolect.experiments.execution import Execution
from idiolect.experiments.progress.watcher import Watcher
from idiolect.experiments.setting import Setting
from idiolect.federation import (
    KEPT_ROWS,
    Demand,
    KeptUploads,
    Placement,
    RowFormat,
    Store,
    choose_store,
    open_store,
    stored_rows,
)

__all__ = [
    "announce",
    "check_rows",
    "demand_of",
    "open_kept",
    "open_private_state",
    "place_kept",
    "place_private_state",
]

PHASES = 4  # shapes per round in ``private_shapes``: at first, after training, after the merge, at the end


def demand_of(setting: Setting, checkpoint_every: int) -> Demand:
    """Returns the most that private state can take in memory and, with the last two checkpoints, on disk.

    Each of the two has all rows in files of its own, and beside them what changed in two intervals of checkpoints.
    """
    experiment, population = setting.experiment, setting.federation.population
    program = setting.program(experiment.rounds - 1)
    plan = program.method.plan(program.scene, program.clock)
    cohort = setting.largest_cohort
    in_rounds = population if plan.merged else min(population, cohort * experiment.rounds)
    changed = population if plan.merged else min(population, cohort * checkpoint_every)
    sizes = [RowFormat([tree]).row_bytes for tree in setting.private_shapes]
    during = max(size for phase, size in enumerate(sizes) if phase % PHASES != PHASES - 1)
    if plan.end:
        return Demand(
            max(sizes), population, population, during * (2 * in_rounds + min(in_rounds, 2 * changed))
        )
    return Demand(during, population, in_rounds, during * (in_rounds + 2 * min(in_rounds, 2 * changed)))


def place_private_state(setting: Setting, folder: Path, execution: Execution) -> Placement:
    """Chooses device memory, host memory or disk for the private state of a run in ``folder``.

    Raises:
        UserError: the disk of ``folder`` is too small.
    """
    device = setting.work.device.type
    demand = demand_of(setting, execution.checkpoint_every)
    kind, cache_mb = execution.store, execution.store_cache
    return choose_store(demand, folder, kind=kind, device=device, cache_mb=cache_mb)


def announce(placement: Placement | None, watcher: Watcher) -> None:
    """Tells the watcher how many rows of clients there can be; a run without any tells nothing."""
    if placement is not None and placement.demand.row_bytes:
        tell = watcher.say if placement.kind == "disk" else watcher.hint
        tell(placement.sentence())


def open_private_state(setting: Setting, placement: Placement, folder: Path) -> Store:
    """Opens the store that ``place_private_state`` has chosen; a disk store lies in ``folder``."""
    return open_store(placement, setting.first_private, setting.private_shapes, folder)


def place_kept(setting: Setting, folder: Path, execution: Execution) -> Placement | None:
    """Chooses where the server keeps what it must know of each client; returns None for a method without such rows.

    It is the disk unless the execution names another store, with as much in memory as two cohorts take.

    Raises:
        UserError: the disk of ``folder`` is too small.
    """
    if not setting.method.keeps:
        return None
    experiment, population = setting.experiment, setting.federation.population
    row = RowFormat([setting.first_kept]).row_bytes
    cohort = setting.largest_cohort
    holders = min(population, cohort * experiment.rounds)
    changed = min(population, cohort * execution.checkpoint_every)
    return choose_store(
        Demand(row, population, holders, row * (holders + 2 * min(holders, 2 * changed))),
        folder,
        kind="disk" if execution.store == "auto" else execution.store,
        device=setting.work.device.type,
        cache_mb=2 * cohort * row / 1e6 if execution.store_cache is None else execution.store_cache,
        name=KEPT_ROWS,
    )


def open_kept(setting: Setting, placement: Placement | None, folder: Path) -> KeptUploads | None:
    """Opens the rows that ``place_kept`` has placed; returns None where there are none."""
    if placement is None:
        return None
    first = setting.first_kept
    store = open_store(placement, lambda client: first, [first], folder, KEPT_ROWS)
    return KeptUploads(store, first, setting.federation.population)


def check_rows(setting: Setting, folder: Path, tree: Mapping[str, Any]) -> None:
    """Reads all rows that a checkpoint knows and changes none.

    Args:
        folder: of the run.
        tree: of the checkpoint.

    Raises:
        UserError: one is damaged.
    """
    population, own = setting.federation.population, tree["private"]
    first, shapes = setting.first_private, setting.private_shapes
    with closing(stored_rows(folder, first, shapes, population, own)) as store:
        store.check(own)
    if "kept" in tree:
        kept, rows = setting.first_kept, tree["kept"]["rows"]
        with closing(stored_rows(folder, lambda client: kept, [kept], population, rows, KEPT_ROWS)) as store:
            store.check(rows)
