"""``run`` and ``compare``: from an experiment to a folder with its record, table and pictures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from idiolect.engines import Where, choose_engine, place, start_early
from idiolect.errors import UserError, refuse_outside, refuse_unknown_choice
from idiolect.experiments.identity import hash_of, name_of
from idiolect.experiments.manifest import describe_run, notes_of
from idiolect.experiments.private_state import announce, open_private_state, place_private_state
from idiolect.experiments.progress import Silent, Watcher
from idiolect.experiments.setting import Setting, prepare
from idiolect.experiments.simulation import Simulation
from idiolect.experiments.spec import Experiment, with_settings
from idiolect.experiments.tracking import Log, open_log
from idiolect.federation import STORES, Placement
from idiolect.methods import label
from idiolect.methods import method as read_method
from idiolect.records import (
    Run,
    RunWriter,
    WriteLock,
    checkpoint_tables,
    find_checkpoint,
    finished,
    finished_folder,
    partial_folder,
    read_run,
    run_name,
    save_checkpoint,
    spec_hash,
)
from idiolect.reports import write_report

__all__ = ["Comparison", "compare", "run"]

OUT = "runs"
CHECKPOINT_EVERY = 10
HOLD_OUT = 0.1  # of the training part, where a method of a comparison chooses on validation data
PUBLIC = 500  # samples of the server's test set, where a method trains on public data


@dataclass(frozen=True)
class Comparison:
    """Args:
    folder: holds the table, the pictures, and one folder per run.
    """

    folder: Path
    runs: list[Run]


def run(
    method: str | Experiment = "fedavg",
    *,
    out: str | Path = OUT,
    engine: str = "auto",
    device: str = "auto",
    workers: int | None = None,
    ray_address: str | None = None,
    gpus_per_worker: float = 0.0,
    data_dir: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int = CHECKPOINT_EVERY,
    store: str = "auto",
    store_cache: float | None = None,
    watcher: Watcher | None = None,
    log: Sequence[str] = (),
    notes: Sequence[str] = (),
    **settings: Any,
) -> Run:
    """Runs one method and returns its record; a run that is finished already is read instead.

    Args:
        method: a name, a composition, or a whole experiment.
        out: folder in which the run's own folder is made.
        engine: ``auto``, ``loop``, ``cohort``, ``pool`` or ``ray``; it changes no number.
        workers: processes of the engines ``pool`` and ``ray``; as many as there are cores unless given.
        ray_address: of a Ray cluster that runs already, for the engine ``ray``.
        gpus_per_worker: of the engine ``ray``.
        resume: goes on from the last checkpoint of an interrupted run.
        checkpoint_every: rounds between checkpoints.
        store: where private state is kept, ``auto``, ``device``, ``host`` or ``disk``; it changes no number.
        store_cache: megabytes of a disk store that stay in memory.
        log: trackers that are told every round's numbers, ``tensorboard`` and ``mlflow``; they write below ``out``.
        notes: sentences kept in the record, which change nothing.
        settings: fields of ``Experiment``.

    >>> import tempfile, idiolect
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = idiolect.run("fedper", rounds=1, clients=4, partition="iid", out=folder, engine="loop")
    >>> done.manifest["headline"]
    'composed'
    """
    refuse_outside("checkpoint_every", checkpoint_every, 1)
    refuse_unknown_choice("store", store, STORES)
    base = method if isinstance(method, Experiment) else Experiment(method=method)
    experiment = with_settings(base, settings)
    if experiment.public < 1 and read_method(experiment.method).needs_public:
        experiment = replace(experiment, public=PUBLIC)
    where = place(engine, device, workers, ray_address, gpus_per_worker)
    name, watcher = name_of(experiment), watcher or Silent()
    told = open_log(log, out)
    if finished(out, name):
        watcher.say(f"{name} is finished already: read, not run again")
        return read_run(finished_folder(out, name))
    start_early(where)
    setting = prepare(experiment, where, data_dir)
    if setting.cannot_batch and where.engine == "cohort":
        where = where._replace(engine="loop", reason=f"the model cannot be batched: {setting.cannot_batch}")
        watcher.say(f"engine loop on {where.device}: {where.reason}")
    if partial_folder(out, name).exists() and not resume:
        WriteLock(partial_folder(out, name)).release()
        raise UserError(
            f"{partial_folder(out, name)} holds an interrupted run; continue it with --resume, or remove it"
        )
    if resume and not partial_folder(out, name).exists():
        watcher.hint(f"nothing to resume in {out}: {name} begins")
    if experiment.precision == "tf32" and where.device == "cpu" and not where.gpus_per_worker:
        notes = [*notes, "a CPU computes tf32 in float32"]
    placement = place_private_state(setting, partial_folder(out, name), checkpoint_every, store, store_cache)
    described = describe_run(setting, where) | {"private_state": placement.facts()}
    with RunWriter(out, name, {**described, "notes": [*described["notes"], *notes]}) as writer:
        return read_run(_carry_out(setting, where, placement, writer, checkpoint_every, watcher, told, notes))


def compare(
    methods: Sequence[str],
    *,
    seeds: Sequence[int] = (0,),
    out: str | Path = OUT,
    engine: str = "auto",
    device: str = "auto",
    workers: int | None = None,
    ray_address: str | None = None,
    gpus_per_worker: float = 0.0,
    data_dir: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int = CHECKPOINT_EVERY,
    store: str = "auto",
    store_cache: float | None = None,
    watcher: Watcher | None = None,
    log: Sequence[str] = (),
    experiment: Experiment | Callable[[str], Experiment] | None = None,
    notes: Sequence[str] = (),
    **settings: Any,
) -> Comparison:
    """Runs several methods on the same clients, splits and batches, and writes table and pictures.

    Args:
        methods: names or compositions.
        seeds: every method runs once for each.
        out: folder in which the comparison's folder is made; the runs lie in it.
        log: trackers of every run; see ``run``.
        experiment: what all methods have in common, or a function that gives each method its experiment.
        notes: sentences kept in every record, which change nothing.
        settings: fields of ``Experiment``, the same for all methods.  Where a method chooses on validation data and
            ``experiment`` holds none out, a tenth of the training part is held out for all; ``valid=0`` given here
            holds out nothing, and what such a method then reports is the choice of an oracle, named so.
    """
    if not methods or not seeds:
        raise UserError("a comparison needs at least one method and one seed")
    one_each = experiment if callable(experiment) else _with_method(experiment or Experiment())
    explicit = "valid" in settings
    bases = [_with_what_is_needed(with_settings(one_each(m), settings), methods, explicit) for m in methods]
    _refuse_repeated(methods, hashes := [hash_of(base) for base in bases])
    where = place(engine, device, workers, ray_address, gpus_per_worker)
    open_log(log, out)  # refused before anything is prepared
    start_early(where)
    experiments = [replace(base, seed=seed) for base in bases for seed in seeds]
    for checked in experiments:
        place_private_state(
            prepare(checked, where, data_dir), Path(out), checkpoint_every, store, store_cache
        )
    identity = spec_hash({"specs": hashes, "seeds": list(seeds)})
    folder = Path(out) / run_name("compare", bases[0].dataset, bases[0].partition, identity, min(seeds))
    runs = [
        run(
            e,
            out=folder,
            engine=where.engine,
            device=where.device,
            workers=workers,
            ray_address=ray_address,
            gpus_per_worker=gpus_per_worker,
            data_dir=data_dir,
            resume=resume,
            checkpoint_every=checkpoint_every,
            store=store,
            store_cache=store_cache,
            watcher=watcher,
            log=log,
            notes=notes,
        )
        for e in experiments
    ]
    write_report(runs, folder)
    return Comparison(folder, runs)


def _refuse_repeated(methods: Sequence[str], hashes: Sequence[str]) -> None:
    first: dict[str, str] = {}
    for method, hash in zip(methods, hashes, strict=True):
        if hash in first:
            raise UserError(f"{first[hash]} and {method} are one method; give it once")
        first[hash] = method


def _with_method(base: Experiment) -> Callable[[str], Experiment]:
    return lambda method: replace(base, method=method)


def _with_what_is_needed(base: Experiment, methods: Sequence[str], explicit: bool) -> Experiment:
    """One split for all: where one method chooses on validation data or needs public data, every method gives some up.

    Args:
        explicit: ``valid`` was asked for; then only a method that cannot run without validation data overrules it.
    """
    chosen = [read_method(text) for text in methods]
    if base.valid <= 0 and any(m.needs_validation if explicit else m.uses_validation for m in chosen):
        base = replace(base, valid=HOLD_OUT * (1 - base.test))
    if base.public < 1 and any(m.needs_public for m in chosen):
        base = replace(base, public=PUBLIC)
    return base


def _carry_out(
    setting: Setting,
    where: Where,
    placement: Placement,
    writer: RunWriter,
    checkpoint_every: int,
    watcher: Watcher,
    log: Log,
    notes: Sequence[str],
) -> Path:
    began = time.perf_counter()
    engine = choose_engine(where, setting.work, watcher.say)
    store = open_private_state(setting, placement, writer.folder)
    try:
        announce(placement, watcher)
        simulation = Simulation.start(setting, engine, store)
        found = find_checkpoint(writer.folder, watcher.say)
        if found is not None:
            simulation.restore(*found)
            began -= _seconds_until(writer.folder, found[0])
        last = found[0] if found else None
        rounds = setting.experiment.rounds
        watcher.begin(label(setting.experiment.method), rounds, simulation.round)
        with log.of_run(writer.final.name, writer.manifest, simulation.round):
            while simulation.round < rounds:
                log.before(simulation)
                simulation.advance()
                log.after(simulation)
                watcher.advance(simulation.round, simulation.latest)
                if simulation.round % checkpoint_every == 0 or simulation.round == rounds:
                    last = _checkpoint(writer, simulation, last)
            log.before(simulation)
            simulation.finish()
            log.after(simulation)
            watcher.advance(simulation.round, simulation.latest)
            last = _checkpoint(writer, simulation, last)
    except (UserError, KeyboardInterrupt) as problem:
        kept = any(writer.folder.glob("checkpoint-*"))
        if not kept:
            writer.discard()
        if isinstance(problem, KeyboardInterrupt):
            watcher.say(
                f"{writer.folder} goes on with --resume" if kept else "stopped before the first checkpoint"
            )
        raise
    finally:
        engine.close()
        store.close()
        watcher.end()
    seconds = time.perf_counter() - began
    tables = checkpoint_tables(writer.folder, last)
    return writer.finish(tables["rounds"], tables["rows"], _outcome(simulation, seconds, notes))


def _seconds_until(folder: Path, round: int) -> float:
    """What the rounds of a checkpoint took; a run that goes on from there counts them."""
    pieces = checkpoint_tables(folder, round)["rounds"]
    return float(sum(sum(piece["seconds"].to_pylist()) for piece in pieces))


def _checkpoint(writer: RunWriter, simulation: Simulation, last: int | None) -> int:
    """Saves what changed since the checkpoint of the round ``last``; gives the round of this one."""
    state = {**simulation.state(), "private": simulation.store.save()}
    tables = {"rows": simulation.rows.take(), "rounds": simulation.rounds.take()}
    save_checkpoint(writer.folder, simulation.round, state, tables, last)
    simulation.store.saved()
    return simulation.round


def _outcome(simulation: Simulation, seconds: float, given: Sequence[str]) -> dict[str, Any]:
    """What is known of a run only at its end."""
    setting = simulation.setting
    notes = [*notes_of(setting.experiment), *given]
    notes += [f"{name} is {member}" for name, member in simulation.picks.items()]
    if setting.headline != setting.method.headline:
        notes.append(f"{setting.headline} is picked on test data: valid=0 leaves no validation data for it")
    idle = setting.federation.population - len(simulation.selected)
    if idle:
        who = "1 client was" if idle == 1 else f"{idle} clients were"
        notes.append(f"{who} never selected; private state is scored as it was at first")
    return {"seconds": seconds, "notes": notes, "choices": simulation.picks, "never_selected": idle}
