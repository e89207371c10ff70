"""The end of a run: what the manifest says only then, the tables, and what is kept of its checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from idiolect.experiments.manifest import notes_of
from idiolect.experiments.progress.watcher import Watcher
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.federation import KEPT_ROWS, PRIVATE_ROWS, drop_older_generation
from idiolect.records import (
    CheckpointName,
    Divergence,
    RunWriter,
    checkpoint_tables,
    drop_older_checkpoint,
    find_checkpoint,
    remove_checkpoints,
)

__all__ = ["keep_models", "outcome_of", "write_record"]


def outcome_of(
    simulation: Simulation, seconds: float, given: Sequence[str], diverged: Divergence | None
) -> dict[str, Any]:
    """Returns what the manifest can say only at the end of a run."""
    setting = simulation.setting
    notes = [*notes_of(setting.experiment), *given]
    notes += [f"{name} is {member}" for name, member in simulation.picks.items()]
    if setting.headline != setting.method.headline:
        notes.append(f"{setting.headline} is picked on test data: valid=0 leaves no validation data for it")
    idle = setting.federation.population - len(simulation.selected)
    if idle:
        who = "1 client" if idle == 1 else f"{idle} clients"
        notes.append(f"{who} never trained; private state is scored as it was at first")
    if waiting := len(simulation.late.waiting):
        what = "1 upload was" if waiting == 1 else f"{waiting} uploads were"
        notes.append(f"{what} still on the way after the last round and not merged")
    if problem := simulation.participants.counter.problem:
        notes.append(f"floating-point operations could not be counted on this network: {problem}")
    found = {"seconds": seconds, "notes": notes, "choices": simulation.picks, "never_selected": idle}
    found |= simulation.budget.facts(simulation.round)
    return found if diverged is None else {**found, "diverged": diverged._asdict()}


def write_record(
    simulation: Simulation, writer: RunWriter, last: CheckpointName | None, outcome: dict[str, Any]
) -> Path:
    """Writes the tables and the manifest of a run whose rounds are done; returns its folder."""
    tables = _tables(simulation, writer.folder, last)
    final = {**tables, "costs": simulation.costs.table()}
    return writer.finish(tables["rounds"], tables["rows"], outcome, final)


def _tables(
    simulation: Simulation, folder: Path, last: CheckpointName | None
) -> dict[str, Iterator[pa.Table]]:
    """Returns the tables of the checkpoint ``last``, followed by what was measured since."""
    since = {"rows": simulation.rows.take(), "rounds": simulation.rounds.take(), **simulation.counts.take()}
    grown = {name: [table] if table.num_rows else [] for name, table in since.items()}
    saved = {} if last is None else checkpoint_tables(folder, last)
    return {name: chain(saved.get(name, ()), grown.get(name, ())) for name in {**saved, **grown}}


def keep_models(folder: Path, watcher: Watcher, diverged: Divergence | None) -> None:
    """Keeps of a finished run's checkpoints what its models are read from; nothing of one that diverged."""
    if diverged is not None:
        watcher.say(f"{folder.name} {diverged.text} and is recorded so; it has no models")
        remove_checkpoints(folder)
        for rows in (PRIVATE_ROWS, KEPT_ROWS):
            shutil.rmtree(folder / rows, ignore_errors=True)
    elif (found := find_checkpoint(folder, watcher.say)) is not None:
        drop_older_checkpoint(folder)
        drop_older_generation(folder, found.tree["private"])
        if "kept" in found.tree:
            drop_older_generation(folder, found.tree["kept"]["rows"], KEPT_ROWS)
