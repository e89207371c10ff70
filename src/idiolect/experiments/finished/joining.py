"""New clients join a finished run: each gets a model of its own by the method's rule, and the run stays as it was.

A new client starts from the final shared model and a fresh private state, as a newcomer at the end of a run does (see
``newcomers``).  Its rows are preprocessed as the run's were: nothing is fitted again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from idiolect.core import Clock, Context, Flat, Part, Plan, Scene, Stage
from idiolect.core.context import with_download
from idiolect.data import Dataset
from idiolect.engines import LoopEngine
from idiolect.engines.client_packing import SINGLE
from idiolect.engines.evaluation import recalibrated
from idiolect.errors import UserError, refuse_outside, unknown_name
from idiolect.experiments.execution import Execution
from idiolect.experiments.finished.client_models import ClientModels
from idiolect.experiments.finished.exported_models import DEFAULT_FORMATS, check_formats, describe_model
from idiolect.experiments.finished.finished_run import FinishedRun, open_run
from idiolect.experiments.finished.personal_model import PersonalModel, finished_model, state_of
from idiolect.experiments.rounds.client_scoring import ResultRecorder, score_newcomers
from idiolect.experiments.rounds.newcomers import JoinedNewcomers
from idiolect.experiments.rounds.newcomers import join as join_newcomers
from idiolect.experiments.run_binding import versions
from idiolect.experiments.setting import Inputs, Setting, assemble
from idiolect.experiments.spec import Experiment
from idiolect.federation import ClientRows, Clients, Federation, split_client, to_dataset
from idiolect.records import RowBuffer, file_digest, read_json_object, write_atomically, write_table

__all__ = ["JoinedClients", "join"]

FORMAT = "idiolect-joining-1"
RECORD, ROWS = "joining.json", "clients.parquet"
HELD_OUT = 0.2  # of a new client's rows for testing, where the run held out nothing of its clients' own
LITTLE = 1e-6  # epochs, where the number of steps is given instead
NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class JoinedClients(ClientModels):
    """Clients that joined a finished run, with their models.

    Args:
        run: the run that they joined.
        manifest: what they joined, with what data and settings.
        rows: every predictor of every client, before and after joining.
        setting: the clients with their data.
        joined: what they have after joining.
        contexts: by client, what its predictors are made of while the results of its training are there.
        folder: where their models and the record of the joining lie.
    """

    run: FinishedRun
    manifest: dict[str, Any]
    rows: pd.DataFrame
    setting: Setting
    joined: JoinedNewcomers
    contexts: dict[int, Context]
    folder: Path

    def __repr__(self) -> str:
        return f"<JoinedClients of {self.run.name}: {', '.join(self.clients)}>"

    @property
    def clients(self) -> tuple[str, ...]:
        return tuple(self.manifest["clients"])

    @property
    def inputs(self) -> Inputs:
        return self.run.inputs

    @property
    def source(self) -> Mapping[str, Any]:
        return self.run.source

    @property
    def default_export_folder(self) -> Path:
        return self.folder

    def table(self) -> pd.DataFrame:
        """Returns the main metric of each client before and after joining, by the predictor of the run's tables."""
        metric, headline = self.run.manifest["primary_metric"], self.run.manifest["headline"]
        rows = self.rows[(self.rows["metric"] == metric) & (self.rows["split"] == "test")]
        wide = rows.pivot(index="client", columns=["moment", "predictor"], values="value")
        before = [name for name in (headline, self.member(None), "global") if ("before", name) in wide]
        found = {"client": self.clients, "test rows": self.manifest["test_rows"]}
        if before:
            found["before"] = wide["before", before[0]].tolist()
        found["after"] = wide["after", headline].tolist()
        return pd.DataFrame(found).assign(metric=metric, predictor=headline)

    def model(self, client: int | str, predictor: str | None = None) -> PersonalModel:
        place, name = self.number_of(client), self.member(predictor)
        number = list(self.joined.privates)[place]
        context = self.contexts[number]
        if name in self.joined.settled[place]:
            context = context._replace(results={})
        found = self.joined.program.predictors(context)
        if name not in found:
            raise unknown_name("predictor", name, found)
        statistics: Flat | None = None
        if found[name].recalibrate and self.setting.task.structure.buffers:
            work = self.setting.work
            statistics = recalibrated(self.joined.program, work, SINGLE, context, [number])[name]
        state = state_of(self.joined.program, context, name, statistics)
        return finished_model(self.joined.program, self.inputs, name, state)

    def global_model(self) -> PersonalModel:
        return self.run.global_model()

    def member(self, predictor: str | None) -> str:
        """Returns the predictor that a name stands for; one that is chosen was chosen on the new clients' data."""
        name = predictor or str(self.run.manifest["headline"])
        return str(self.manifest["choices"].get(f"{name} of newcomers", name))

    def describe(self, number: int | None, predictor: str | None) -> dict[str, Any]:
        if number is None:
            return self.run.describe(None, predictor)
        asked, name = predictor or self.run.manifest["headline"], self.clients[number]
        run = self.run
        about = describe_model(
            run.manifest, self.inputs, run.population, name, asked, self.member(predictor), newcomer=True
        )
        return about | {"joining": {key: self.manifest[key] for key in ("data", "settings")}}


def join(
    run: FinishedRun | str | Path,
    data: Any,
    *,
    steps: int | None = None,
    epochs: float | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    formats: Sequence[str] = DEFAULT_FORMATS,
    **options: Any,
) -> JoinedClients:
    """Lets new clients join a finished run by its method's own rule, and gives each a model of its own.

    Each client trains on its own rows, starting from the run's final shared model; the run is not changed.  The models
    and a record of the joining are written to a folder beside the run.

    Args:
        run: a finished run or its folder.
        data: rows of the new clients, in any form that ``run(data=...)`` takes; data that name no clients are one
            client's, called ``new``, and the clients of a list are ``new-0``, ``new-1`` and so on.  A table names its
            clients, and its label, in the columns of the run's data unless the options say otherwise.
        steps, epochs: how long each client trains, in every stage of the method's rule; by default as the run says.
        out: the folder of the models; by default beside the run.
        device: ``auto``, ``cpu`` or ``cuda``.
        formats: of the models that are written, as for ``FinishedRun.export``.
        options: how the data are read, such as ``client_column``.

    Raises:
        UserError: the data do not fit the run, or the folder is taken.
    """
    check_formats(formats)
    finished = run if isinstance(run, FinishedRun) else open_run(run)
    dataset = _fitting(finished, _read(finished, data, options))
    experiment = _with_work(finished.setting.experiment, steps, epochs)
    setting, names = _setting(finished, experiment, dataset, device)
    if steps is not None or epochs is not None:
        method = setting.method
        asked = replace(method, parts=(*method.parts, _asked_work(steps, epochs)))
        setting = replace(setting, method=asked)
    new = list(range(len(setting.federation.clients) - len(names), len(setting.federation.clients)))
    manifest = {
        "format": FORMAT,
        "run": finished.name,
        "spec_hash": finished.manifest["spec_hash"],
        "data": {"name": dataset.name, "sha256": dataset.digest, "source": dataset.manifest},
        "settings": {"steps": steps, "epochs": epochs},
        "clients": names,
        "test_rows": [len(setting.federation.clients[number].test) for number in new],
    }
    folder = _folder(finished, out, manifest)
    joined, contexts, rows, picks = _trained(setting, finished, new)
    table = rows.take()
    found = JoinedClients(
        finished, {**manifest, "choices": picks}, table.to_pandas(), setting, joined, contexts, folder
    )
    _write(found, table, formats)
    return found


def _trained(
    setting: Setting, run: FinishedRun, new: list[int]
) -> tuple[JoinedNewcomers, dict[int, Context], RowBuffer, dict[str, str]]:
    """Trains and scores new clients: what they have then, their contexts, the rows of their scores, and choices."""
    contexts: dict[int, Context] = {}
    engine = LoopEngine(setting.work, keep=contexts.__setitem__)
    server, rounds = setting.work.copied(run.server), setting.experiment.rounds
    program = setting.program(rounds, newcomer=True)
    sent = run.downloads(setting).send(program, server, new)
    joined = join_newcomers(setting, engine, sent, rounds)
    for number, private in joined.privates.items():
        own = contexts[number].private.get("download", {})
        contexts[number] = contexts[number]._replace(private=with_download(private, own))  # type: ignore[arg-type]
    rows = RowBuffer()
    picks = ResultRecorder(setting, rows, rounds, server).newcomers(score_newcomers(setting, joined))
    return joined, contexts, rows, picks


def _read(run: FinishedRun, data: Any, options: dict[str, Any]) -> Dataset:
    """Reads data with the classes, and the encoding of columns, of the run's own data."""
    inputs, source = run.inputs, run.source
    if isinstance(data, Dataset):
        return to_dataset(data, **options)
    if isinstance(data, list):
        width = len(str(len(data) - 1))  # so that names are in the order of the list
        data = {f"new-{place:0{width}}": pair for place, pair in enumerate(data)}
    if isinstance(data, pd.DataFrame) and "columns" not in source:
        raise UserError(f"{run.name} was trained on arrays, so that a table does not fit it; give (x, y)")
    classes = list(inputs.class_names) or [str(k) for k in range(inputs.n_classes)]
    like = {**source, "class_names": classes if inputs.task != "regression" else list(inputs.class_names)}
    roles = source.get("columns")
    if roles and isinstance(data, pd.DataFrame | str | Path):
        labels = roles["labels"]
        options = {"label_column": labels[0] if len(labels) == 1 else tuple(labels), **options}
    reads_tokens = inputs.dtype == "int64"
    return to_dataset(
        data,
        **{
            "task": inputs.task,
            "fill": "zero" if inputs.preprocessing.fill else None,
            "vocabulary": run.vocabulary if reads_tokens else None,
            "like": like,
            **options,
        },
    )


def _fitting(run: FinishedRun, dataset: Dataset) -> Dataset:
    """Returns the data with the run's classes and type of rows; data of another kind are refused."""
    inputs = run.inputs
    if dataset.task != inputs.task:
        raise UserError(f"{run.name} was trained for {inputs.task} and the new data are for {dataset.task}")
    if dataset.shape != inputs.shape:
        raise UserError(
            f"{run.name} was trained on rows of the shape {list(inputs.shape)} and those of the new data have "
            f"{list(dataset.shape)}"
        )
    if dataset.feature_names and inputs.feature_names and dataset.feature_names != inputs.feature_names:
        raise UserError(
            f"{run.name} was trained on the columns {', '.join(inputs.feature_names)} and the new data have "
            f"{', '.join(dataset.feature_names)}"
        )
    if dataset.has_classes and dataset.class_names and inputs.class_names:
        dataset = _with_classes(run, dataset)
    elif dataset.n_classes > inputs.n_classes or (
        not dataset.has_classes and dataset.n_classes != inputs.n_classes
    ):
        what = "classes" if dataset.has_classes else "targets"
        raise UserError(
            f"{run.name} was trained with {inputs.n_classes} {what} and the new data have {dataset.n_classes}"
        )
    if dataset.train_x.dtype.name == inputs.dtype:
        return dataset
    if inputs.dtype != "float32":
        raise UserError(
            f"{run.name} was trained on {inputs.dtype} rows and the new ones are {dataset.train_x.dtype}; give them as "
            f"{inputs.dtype}"
        )
    return replace(
        dataset, train_x=dataset.train_x.astype(np.float32), test_x=dataset.test_x.astype(np.float32)
    )


def _with_classes(run: FinishedRun, dataset: Dataset) -> Dataset:
    """Returns the data with classes numbered as in the run."""
    known = {name: number for number, name in enumerate(run.inputs.class_names)}
    unknown = [name for name in dataset.class_names if name not in known]
    if unknown:
        raise unknown_name("class", unknown[0], known)
    number = np.array([known[name] for name in dataset.class_names], np.int64)
    return replace(
        dataset,
        train_y=number[dataset.train_y],
        test_y=number[dataset.test_y],
        n_classes=run.inputs.n_classes,
        class_names=run.inputs.class_names,
    )


def _with_work(experiment: Experiment, steps: int | None, epochs: float | None) -> Experiment:
    """Returns the experiment with as much local work as is asked for."""
    if steps is not None and epochs is not None:
        raise UserError("steps and epochs both say how long new clients train; give one of them")
    if steps is not None:
        if isinstance(steps, bool) or not isinstance(steps, int):
            raise UserError(f"steps must be a whole number, got {steps!r}; give epochs for a part of a pass")
        refuse_outside("steps", steps, 1)
        return replace(experiment, local_epochs=LITTLE, min_local_steps=steps)
    if epochs is not None:
        refuse_outside("epochs", epochs, 0)
        return replace(experiment, local_epochs=epochs, min_local_steps=0)
    return experiment


def _asked_work(steps: int | None, epochs: float | None) -> Part:
    """Returns a part that sets the length of stages whose length is the method's own and not the scene's."""

    def asked(stage: Stage) -> Stage:
        if stage.measure is not None or (stage.epochs is None and stage.steps is None):
            return stage
        return replace(stage, steps=steps, epochs=epochs)

    def stages(plan: Plan, scene: Scene, clock: Clock) -> Plan:
        phases = {
            phase: tuple(map(asked, getattr(plan, phase))) for phase in ("before", "after", "merged", "end")
        }
        return plan._replace(**phases)

    return Part("asked_work", stages=stages)


def _setting(
    run: FinishedRun, experiment: Experiment, dataset: Dataset, device: str
) -> tuple[Setting, list[str]]:
    """Returns the setting in which the new clients, numbered after all others, hold their rows; and their names."""
    known, inputs = len(run.manifest["class_counts"]), run.inputs
    owners = np.zeros(len(dataset.train_y), np.int64) if dataset.train_ids is None else dataset.train_ids
    names = ["new"] if dataset.train_ids is None else [str(name) for name in np.unique(owners)]
    _refuse_members(run, names)
    test = experiment.test or HELD_OUT
    new = [
        split_client(
            dataset,
            np.flatnonzero(owners == owner),
            known + place,
            valid=experiment.valid,
            test=test,
            seed=experiment.seed_of_data,
            name=f"client {name}",
        )
        for place, (owner, name) in enumerate(zip(np.unique(owners), names, strict=True))
    ]
    x, y = inputs.preprocessing.rows(dataset.train_x), inputs.preprocessing.targets(dataset.train_y)
    numbers = list(range(known, known + len(new)))
    federation = Federation(
        x,
        y,
        x[:0],
        y[:0],
        inputs.n_classes,
        Clients([*[ClientRows(NO_ROWS, NO_ROWS, NO_ROWS)] * known, *new]),
        NO_ROWS,
        (*run.manifest["newcomers"], *numbers),
        task=inputs.task,
        preprocessing=inputs.preprocessing,
    )
    choice = Execution(engine="loop", device=device).engine_choice()
    return assemble(replace(experiment, newcomers=0), choice, federation, inputs, held=numbers), names


def _refuse_members(run: FinishedRun, names: Sequence[str]) -> None:
    """Refuses new clients with the name of a client that trained, where the run's data name their clients."""
    members = set(run.clients) if run.manifest.get("client_names") else set()
    member = next((name for name in names if name in members), None)
    if member is not None:
        raise UserError(
            f"client {member!r} took part in the run; open it with run.model({member!r}), or give the newcomer another "
            "name"
        )


def _folder(run: FinishedRun, out: str | Path | None, manifest: Mapping[str, Any]) -> Path:
    """Returns the folder of the joined clients, which is absent, empty, or holds the same joining.

    By default its name tells the data, and how long clients trained where that was asked for.
    """
    assert run.folder is not None
    inside = run.folder.resolve()
    work = "".join(f"-{key}{value:g}" for key, value in manifest["settings"].items() if value is not None)
    usual = run.folder.with_name(f"{run.name}-joined-{manifest['data']['sha256'][:8]}{work}")
    folder = Path(out) if out is not None else usual
    if inside == folder.resolve() or inside in folder.resolve().parents:
        raise UserError(
            f"{folder} lies inside the run {run.name}, which is never changed; choose another with --out"
        )
    if (folder / RECORD).is_file():
        there = _record(folder)
        if any(there.get(key) != json.loads(json.dumps(value)) for key, value in manifest.items()):
            raise UserError(
                f"{folder} holds other clients, or the same that trained otherwise; choose another with --out"
            )
    elif folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(
            f"{folder} is there already and is no folder of joined clients; choose another with --out"
        )
    return folder


def _record(folder: Path) -> dict[str, Any]:
    try:
        return read_json_object(folder / RECORD)
    except ValueError as error:
        raise UserError(
            f"{folder / RECORD} is damaged ({error}); remove the folder, or choose another with --out"
        ) from error


def _write(found: JoinedClients, rows: Any, formats: Sequence[str]) -> None:
    """Writes the models and the record to a folder that appears as a whole.

    A folder that holds the same joining gets the formats that it lacks.
    """
    folder = found.folder
    if (folder / RECORD).is_file():
        found.export(out=folder, formats=formats)
        _write_record(folder, found.manifest)
        return
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        found.export(out=partial, formats=formats)
        write_table(partial / ROWS, rows)
        _write_record(partial, found.manifest)
        if folder.exists():
            folder.rmdir()
        os.rename(partial, folder)
    except OSError as error:
        raise UserError(f"cannot write {folder} ({error.strerror}); choose another with --out") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_record(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Writes what the folder holds, with the checksums of its files."""
    digests = {path.name: file_digest(path) for path in sorted(folder.iterdir()) if path.name != RECORD}
    record = {**manifest, "versions": versions(), "sha256": digests}
    write_atomically(folder / RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
