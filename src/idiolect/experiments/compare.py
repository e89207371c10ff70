"""``compare``: several methods on the same clients, splits and batches, with a table and pictures."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from idiolect.engines import start_early
from idiolect.errors import UserError, list_of
from idiolect.experiments.execution import Execution, split_keywords
from idiolect.experiments.finished.finished_run import FinishedRun, open_run
from idiolect.experiments.identity import hash_of, name_of, refuse_repeated
from idiolect.experiments.jobs.side_by_side import RunTask, run_tasks
from idiolect.experiments.own_data import with_own_data
from idiolect.experiments.rounds.divergence import Diverged
from idiolect.experiments.rounds.private_state_placement import place_private_state
from idiolect.experiments.run import with_public_samples
from idiolect.experiments.setting import prepare
from idiolect.experiments.shown_settings import shows_settings
from idiolect.experiments.spec import Experiment, with_settings
from idiolect.experiments.sweep.best_settings import SweptSettings, read_sweep, refuse_unknown_data
from idiolect.experiments.tracking import open_log
from idiolect.methods import label
from idiolect.methods import method as read_method
from idiolect.records import finished, run_name, spec_hash
from idiolect.reports import runs_html, write_report

__all__ = ["Comparison", "compare"]

HOLD_OUT = 0.1  # of the training part, where a method of a comparison chooses on validation data


@dataclass(frozen=True, repr=False)
class Comparison:
    """The runs of a comparison.

    Args:
        folder: holds the table, the pictures, and one folder per run.
    """

    folder: Path
    runs: list[FinishedRun]

    def __repr__(self) -> str:
        labels = dict.fromkeys(str(run.manifest["label"]) for run in self.runs)
        return f"<Comparison of {', '.join(labels)}: {len(self.runs)} runs in {self.folder}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the table, the best method first, and the learning curves."""
        return runs_html(f"{len(self.runs)} runs in {self.folder}", self.runs)


@shows_settings
def compare(
    methods: Sequence[str] = (),
    *,
    seeds: Sequence[int] | None = None,
    experiment: Experiment | Callable[[str], Experiment] | None = None,
    from_sweep: str | Path | None = None,
    execution: Execution | None = None,
    beside_clean: bool = False,
    **settings: Any,
) -> Comparison:
    """Runs several methods on the same clients, splits and batches, and writes a table and pictures.

    All experiments are prepared before the first one runs, so that a method that cannot run is refused at once.

    Args:
        methods: names or compositions; with ``from_sweep``, some of the methods that were swept, or all.
        seeds: every method runs once for each; 0 by default, and with ``from_sweep`` the first that tuned nothing.
        experiment: what all methods have in common, or a function that gives each method its experiment.
        from_sweep: the folder of a sweep; every method runs with the setting that was best there on validation data,
            and its record says so.
        execution: how the runs are made; the comparison's folder lies in its ``out``, and the runs lie in that folder.
        beside_clean: every method also runs without the disturbances of ``under``, and the report compares the two.
        settings: fields of ``Experiment``, the same for all methods, and of ``Execution``; see ``run``.  Where a method
            chooses on validation data and ``experiment`` holds none out, a tenth of the training part is held out for
            all; ``valid=0`` given here holds out nothing, and such a method then reports the choice of an oracle,
            named so.
    """
    methods = list_of("methods", methods, str, "['fedavg', 'fedper']")
    swept = None if from_sweep is None else read_sweep(from_sweep)
    if swept is not None and experiment is not None:
        raise UserError("a sweep brings its experiments; leave experiment out, or from_sweep")
    if seeds is None:
        seeds = [swept.next_seed] if swept else [0]
    seeds = list_of("seeds", seeds, int, "range(3)")
    if not (methods or swept) or not seeds:
        raise UserError("a comparison needs at least one method and one seed")
    if len(set(seeds)) < len(seeds):
        raise UserError(f"seeds holds {max(seeds, key=seeds.count)} twice; give every seed once")
    execution, chosen = split_keywords(
        execution, with_own_data(settings, experiment is None and swept is None)
    )
    entries = _swept_entries(swept, methods, chosen) if swept else _entries(methods, experiment, chosen)
    methods = [entry.method for entry in entries]
    bases = [_with_needed_data(entry.base, methods, "valid" in chosen) for entry in entries]
    refuse_repeated(methods, bases)
    if beside_clean:
        bases, entries = [*_undisturbed(bases), *bases], [*entries, *entries]
    tasks = [
        RunTask((place, seed), replace(base, seed=seed), _notes(entry, swept, seed))
        for place, (entry, base) in enumerate(zip(entries, bases, strict=True))
        for seed in seeds
    ]
    execution = _prepared([task.experiment for task in tasks], execution)
    folder = Path(execution.out) / _name_of_comparison(bases, seeds)
    runs = _make_runs(tasks, replace(execution, out=folder))
    write_report(runs, folder)
    open_log(execution.log, folder).keep_comparison(folder)
    return Comparison(folder, runs)


def _name_of_comparison(bases: Sequence[Experiment], seeds: Sequence[int]) -> str:
    identity = spec_hash({"specs": [hash_of(base) for base in bases], "seeds": seeds})
    return run_name("compare", bases[0].dataset, bases[0].partition, identity, min(seeds))


class _Entry(NamedTuple):
    """A method of a comparison, its experiment without the seed, and where its setting comes from."""

    method: str
    base: Experiment
    note: str = ""


def _entries(
    methods: Sequence[str],
    experiment: Experiment | Callable[[str], Experiment] | None,
    chosen: dict[str, Any],
) -> list[_Entry]:
    one_each = experiment if callable(experiment) else _with_method(experiment or Experiment())
    return [_Entry(method, with_settings(one_each(method), chosen)) for method in methods]


def _swept_entries(swept: SweptSettings, methods: Sequence[str], chosen: dict[str, Any]) -> list[_Entry]:
    found = swept.chosen(methods)
    if "dataset" not in chosen:
        refuse_unknown_data(found)
    return [_Entry(one.experiment.method, with_settings(one.experiment, chosen), one.note) for one in found]


def _notes(entry: _Entry, swept: SweptSettings | None, seed: int) -> tuple[str, ...]:
    tuned = swept.note_of_seed(seed) if swept else ""
    return tuple(note for note in (entry.note, tuned) if note)


def _make_runs(tasks: Sequence[RunTask], execution: Execution) -> list[FinishedRun]:
    """Makes the runs, ``execution.jobs`` at a time, and reads finished ones; the first refusal stops all others."""
    unfinished = [task for task in tasks if not finished(execution.out, name_of(task.experiment))]
    experiments = {task.key: task.experiment for task in tasks}
    seeds = {task.experiment.seed for task in tasks}
    folders: dict[Hashable, Path] = {}
    for result in run_tasks(tasks, execution, len(unfinished)):
        if result.folder is None:
            name, seed = label(experiments[result.key].method), experiments[result.key].seed
            if result.divergence is not None:
                raise Diverged(f"{name}, seed {seed}" if len(seeds) > 1 else name, result.divergence)
            raise UserError(result.refused if name in result.refused else f"{name}: {result.refused}")
        folders[result.key] = result.folder
    return [open_run(folders[task.key], data_dir=execution.data_dir) for task in tasks]


def _prepared(experiments: Sequence[Experiment], execution: Execution) -> Execution:
    """Prepares every experiment once, to refuse what cannot run; returns the execution with ``auto`` resolved."""
    engine_choice, out = execution.engine_choice(), Path(execution.out)
    open_log(execution.log, out)
    if execution.jobs > 1:  # the runs start workers, or use the GPU, themselves
        engine_choice = engine_choice._replace(engine="loop", device="cpu")
    start_early(engine_choice)
    for experiment in experiments:
        setting = prepare(experiment, engine_choice, execution.data_dir)
        place_private_state(setting, out, execution)
    chosen = execution.engine_choice()
    return replace(execution, engine=chosen.engine, device=chosen.device)


def _undisturbed(bases: Sequence[Experiment]) -> list[Experiment]:
    """Returns the experiments without their disturbances."""
    if not all(base.under for base in bases):
        raise UserError("a run beside the clean one needs a disturbance; give --under too")
    return [replace(base, under=()) for base in bases]


def _with_method(base: Experiment) -> Callable[[str], Experiment]:
    return lambda method: replace(base, method=method)


def _with_needed_data(base: Experiment, methods: Sequence[str], explicit: bool) -> Experiment:
    """Returns the experiment with one split for all: data that one method needs are held out for every method.

    Args:
        explicit: ``valid`` was asked for; then only a method that cannot run without validation data overrules it.
    """
    chosen = [read_method(text) for text in methods]
    if base.valid <= 0 and any(m.needs_validation if explicit else m.uses_validation for m in chosen):
        base = replace(base, valid=HOLD_OUT * (1 - base.test))
    return with_public_samples(base, methods)
