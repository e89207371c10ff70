"""``run``: from an experiment to a folder with its record; an interrupted run continues from its last checkpoint."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from idiolect.data import is_registered
from idiolect.engines import EngineChoice, choose_engine, start_early
from idiolect.errors import UserError
from idiolect.experiments.execution import Execution, split_keywords
from idiolect.experiments.finished.finished_run import FinishedRun, open_run
from idiolect.experiments.identity import name_of
from idiolect.experiments.manifest import describe_run
from idiolect.experiments.own_data import with_own_data
from idiolect.experiments.progress.watcher import Watcher, tell, written_duration
from idiolect.experiments.rounds.divergence import Diverged
from idiolect.experiments.rounds.early_stopping import Judge, StoppedEarly, validation_value
from idiolect.experiments.rounds.end_of_run import keep_models, outcome_of, write_record
from idiolect.experiments.rounds.end_stages import EndStages, end_stages
from idiolect.experiments.rounds.privacy_budget import PrivacyBudget
from idiolect.experiments.rounds.private_state_placement import (
    announce,
    check_rows,
    open_kept,
    open_private_state,
    place_kept,
    place_private_state,
)
from idiolect.experiments.rounds.resources import ResourceMeter
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.run_binding import (
    bound,
    changes_on_resume,
    note_on_changes,
    refuse_data_of_another_name,
)
from idiolect.experiments.setting import Setting, prepare
from idiolect.experiments.shown_settings import shows_settings
from idiolect.experiments.spec import Experiment, with_settings
from idiolect.experiments.tracking import Log, open_log
from idiolect.federation import Placement
from idiolect.methods import label
from idiolect.methods import method as read_method
from idiolect.records import (
    CheckpointName,
    Divergence,
    RunWriter,
    SavedCheckpoint,
    WriteLock,
    checkpoint_tables,
    divergence_of,
    find_checkpoint,
    finished,
    finished_folder,
    partial_folder,
    save_checkpoint,
)

__all__ = ["make_run", "run", "with_public_samples"]

LONG_END = 5.0  # seconds from which on the user is told that the end begins
PUBLIC = 500  # samples of the server's test set, where a method trains on public data


@shows_settings
def run(
    method: str | Experiment = "fedavg", *, execution: Execution | None = None, **settings: Any
) -> FinishedRun:
    """Runs one method and returns its record and its models; a run that is finished already is read instead.

    Args:
        method: a name, a composition, or a whole experiment.
        execution: how the run is made: engine, device, output folder and so on; the defaults unless given.
        settings: fields of ``Experiment``, such as ``rounds=5``, and of ``Execution``, such as ``engine="loop"``; a
            keyword wins over the field of the experiment or execution that is given.  ``quiet=True`` shows no progress.
            ``data`` is data of your own in place of a dataset by name, and ``client_column``, ``label_column``,
            ``split_column``, ``split_by``, ``task``, ``fill``, ``vocabulary``, ``client_of`` and ``split_of`` say how
            they are read: see ``federation.to_dataset``; ``repartition`` mixes the rows of clients that they name.

    >>> import tempfile, idiolect
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = idiolect.run("fedper", rounds=1, clients=4, partition="iid", out=folder, engine="loop")
    >>> done.manifest["headline"]
    'composed'
    """
    if not isinstance(method, str | Experiment):
        raise UserError(f"method must be a name, a composition or an Experiment, got {method!r}")
    execution, chosen = split_keywords(execution, with_own_data(settings, isinstance(method, str)))
    base = method if isinstance(method, Experiment) else Experiment(method=method)
    experiment = with_settings(base, chosen)
    experiment = with_public_samples(experiment, [experiment.method])
    return make_run(experiment, execution, alone=True)


def make_run(
    experiment: Experiment, execution: Execution, judge: Judge | None = None, *, alone: bool = False
) -> FinishedRun:
    """Makes the run of an experiment that is complete, or reads it if it is finished already.

    Args:
        judge: is told the validation metric after every evaluated round but the last, and says whether to stop.
        alone: whether it is the only run that was asked for: its user is then told if there is nothing to resume.

    Raises:
        StoppedEarly: the judge has stopped the run, of which nothing stays.
    """
    execution = replace(execution, jobs=1)
    name, out, watcher = name_of(experiment), execution.out, execution.watcher
    log = open_log(execution.log, out)
    if finished(out, name):
        return _read_again(experiment, name, execution)
    asked = execution.engine_choice()
    start_early(asked)
    setting = prepare(experiment, asked, execution.data_dir)
    if is_registered(experiment.dataset):
        clients, each = setting.federation.population, setting.program(0).clock.expected_cohort
        about = "about " if experiment.selection == "poisson" else ""
        watcher.hint(f"{clients} clients, {about}{each} of them in each round; network {experiment.model}")
    engine_choice = asked.for_network(setting.cannot_batch)
    if engine_choice != asked:
        watcher.say(str(engine_choice))
    if spends := PrivacyBudget(setting).sentence(experiment.rounds):
        watcher.say(spends)
    _check_interrupted(execution, name)
    if experiment.precision == "tf32" and not engine_choice.trains_on_gpu:
        execution = replace(execution, notes=[*execution.notes, "a CPU computes tf32 in float32"])
    unfinished = partial_folder(out, name)
    placements = (
        place_private_state(setting, unfinished, execution),
        place_kept(setting, unfinished, execution),
    )
    described = describe_run(setting, engine_choice) | _placed(*placements)
    described["notes"] = [*described["notes"], *execution.notes]
    found = _checkpoint_to_resume(setting, unfinished, watcher)
    if found is not None and (
        changes := changes_on_resume(unfinished, found, described, execution.accept_changes)
    ):
        described["accepted"] = changes
    if execution.resume and not unfinished.exists():
        refuse_data_of_another_name(experiment, out, described)
        if alone:
            watcher.hint(f"nothing to resume in {out}: {name} begins")
    try:
        with RunWriter(out, name, described) as writer, log.closing():
            folder = _carry_out(setting, engine_choice, execution, placements, found, writer, log, judge)
            done = open_run(folder, data_dir=execution.data_dir)
            log.keep(done)
    except StoppedEarly:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return done


def _placed(private: Placement, kept: Placement | None) -> dict[str, Any]:
    """Returns what the manifest says of where rows are kept."""
    return {"private_state": private.facts()} | ({"kept_by_server": kept.facts()} if kept else {})


def _read_again(experiment: Experiment, name: str, execution: Execution) -> FinishedRun:
    """Reads a run that is finished already; one that diverged is refused as it was, unless divergence is recorded.

    Raises:
        UserError: it was made with other data.
    """
    note = note_on_changes(experiment, name, execution.out, execution.data_dir)
    done = open_run(finished_folder(execution.out, name), data_dir=execution.data_dir)
    if (diverged := divergence_of(done.manifest)) is None:
        execution.watcher.say(f"{name} is finished already: read, not run again{note and '; '}{note}")
    elif execution.records_divergence:
        execution.watcher.say(
            f"{name} is recorded already and {diverged.text}: read, not run again{note and '; '}{note}"
        )
    else:
        raise Diverged(done.manifest["label"], diverged)
    return done


def with_public_samples(experiment: Experiment, methods: Sequence[str]) -> Experiment:
    """Returns the experiment with public data on the server where one of the methods cannot run without it."""
    if experiment.public < 1 and any(read_method(method).needs_public for method in methods):
        return replace(experiment, public=PUBLIC)
    return experiment


def _check_interrupted(execution: Execution, name: str) -> None:
    """Refuses a run that another process writes, or that was interrupted, unless it is to be resumed."""
    partial = partial_folder(execution.out, name)
    if partial.exists():
        WriteLock(partial).release()
        if not execution.resume:
            raise UserError(f"{partial} holds an interrupted run; continue it with --resume, or remove it")


def _checkpoint_to_resume(setting: Setting, unfinished: Path, watcher: Watcher) -> SavedCheckpoint | None:
    """Returns the newest checkpoint of an interrupted run of which also all rows are sound; None where none is."""
    if not unfinished.exists():
        return None
    return find_checkpoint(unfinished, watcher.say, partial(check_rows, setting, unfinished))


def _carry_out(
    setting: Setting,
    engine_choice: EngineChoice,
    execution: Execution,
    placements: tuple[Placement, Placement | None],
    found: SavedCheckpoint | None,
    writer: RunWriter,
    log: Log,
    judge: Judge | None,
) -> Path:
    """Runs the rounds that are not done yet and writes the record; returns its folder.

    Args:
        found: the checkpoint that the run continues from.
    """
    began, watcher = time.perf_counter(), execution.watcher
    meter = ResourceMeter(engine_choice.device == "cuda")
    engine = choose_engine(engine_choice, setting.work, watcher.say)
    placement, placed = placements
    store, kept = (
        open_private_state(setting, placement, writer.folder),
        open_kept(setting, placed, writer.folder),
    )
    try:
        for each in placements:
            announce(each, watcher)
        ending = _foreseen_end(setting, watcher)
        simulation = Simulation.start(setting, engine, store, kept)
        if found is not None:
            simulation.restore(found.round, found.tree)
            began -= _seconds_until(writer.folder, found.name)
            meter.restore(found.tree.get("resources"))
        watcher.begin(label(setting.experiment.method), setting.experiment.rounds, simulation.round)
        if ending is not None:
            tell(watcher, "ending", ending.rounds)
        log.begin(writer.final.name, writer.manifest, simulation.round)
        last, diverged = _train(
            simulation, execution, writer, log, found and found.name, ending, judge, meter
        )
        meter.look(now=True)  # while workers are there
    except (UserError, KeyboardInterrupt) as problem:
        _leave_off(writer, watcher, isinstance(problem, KeyboardInterrupt))
        raise
    finally:
        engine.close()
        store.close()
        if kept is not None:
            kept.store.close()
        watcher.end()
    seconds = time.perf_counter() - began
    outcome = outcome_of(simulation, seconds, execution.notes, diverged) | {"resources": meter.facts(seconds)}
    folder = write_record(simulation, writer, last, outcome)
    keep_models(folder, watcher, diverged)
    return folder


def _foreseen_end(setting: Setting, watcher: Watcher) -> EndStages | None:
    """Returns what the end of the run will cost, and says so if that is much."""
    ending = end_stages(setting)
    if ending is not None and ending.is_long:
        watcher.say(ending.announcement(label(setting.experiment.method)))
    return ending


def _leave_off(writer: RunWriter, watcher: Watcher, interrupted: bool) -> None:
    """Keeps what can be resumed of a run that ends before its time, and says so if it was interrupted."""
    kept = any(writer.folder.glob("checkpoint-*.safetensors"))
    if not kept:
        writer.discard()
    if interrupted:
        watcher.say(
            f"{writer.folder} goes on with --resume" if kept else "stopped before the first checkpoint"
        )


def _train(
    simulation: Simulation,
    execution: Execution,
    writer: RunWriter,
    log: Log,
    last: CheckpointName | None,
    ending: EndStages | None,
    judge: Judge | None,
    meter: ResourceMeter,
) -> tuple[CheckpointName | None, Divergence | None]:
    """Makes all rounds and the end of the run.

    Args:
        last: the checkpoint that the run continues from.
        ending: what the end of the run will cost.

    Returns:
        The last checkpoint, and where the run diverged, if it did and divergence is recorded.
    """
    rounds = simulation.setting.experiment.rounds
    began, first = time.perf_counter(), simulation.round

    def reported(step: Callable[[], None]) -> None:
        log.before(simulation)
        step()
        log.after(simulation)
        execution.watcher.advance(simulation.round, simulation.latest)
        meter.look()

    try:
        while simulation.round < rounds:
            known = len(simulation.rows)
            reported(simulation.advance)
            if judge is not None and simulation.round < rounds:
                _ask(judge, simulation, known)
            if simulation.round % execution.checkpoint_every == 0 or simulation.round == rounds:
                last = _checkpoint(writer, simulation, last, meter)
        if ending is not None and not simulation.ended:
            seconds = (time.perf_counter() - began) / max(rounds - first, 1) * ending.rounds
            name = label(simulation.setting.experiment.method)
            _announce_end(execution.watcher, name, seconds, rounds > first)
        simulation.participants.watch_end = partial(tell, execution.watcher, "settle")
        reported(simulation.finish)
    except Diverged as problem:
        if not execution.records_divergence:
            raise
        return last, problem.divergence
    return _checkpoint(writer, simulation, last, meter), None


def _ask(judge: Judge, simulation: Simulation, known: int) -> None:
    """Asks the judge whether the run stops, if something was measured on validation data in its last round.

    Args:
        known: rows that were recorded before the last round.
    """
    value = validation_value(simulation, known)
    if value is not None and judge(simulation.round, value):
        raise StoppedEarly(simulation.round)


def _announce_end(watcher: Watcher, name: str, seconds: float, has_rate: bool) -> None:
    """Says that the stages of the end begin, and how long they may take; a short end is a hint."""
    takes = f", about {written_duration(seconds)}" if has_rate else ""
    tell = watcher.say if seconds >= LONG_END else watcher.hint
    tell(f"{name}: the rounds are done and the stages at the end of the run begin{takes}")


def _seconds_until(folder: Path, name: CheckpointName) -> float:
    """Returns the time that the rounds before a checkpoint took; a run that continues from there counts it."""
    pieces = checkpoint_tables(folder, name)["rounds"]
    return float(sum(sum(piece["seconds"].to_pylist()) for piece in pieces))


def _checkpoint(
    writer: RunWriter, simulation: Simulation, last: CheckpointName | None, meter: ResourceMeter
) -> CheckpointName:
    """Saves what changed since the checkpoint ``last``; returns the name of this one."""
    rows = {"private": simulation.store.save(), **simulation.participants.downloads.save()}
    state = {**simulation.state(), **rows, "resources": meter.state()}
    grown = {"rows": simulation.rows.take(), "rounds": simulation.rounds.take()}
    tables = {**grown, **simulation.counts.take()}
    name = save_checkpoint(writer.folder, simulation.round, state, tables, last, bound(writer.manifest))
    simulation.store.saved()
    simulation.participants.downloads.saved()
    return name
