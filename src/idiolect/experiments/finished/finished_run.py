"""A finished run: its record, and the models that it trained, rebuilt from its folder without its data."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, cast

from idiolect.core import Context, Facts, Flat, Predictor, PrivateState, Program, ServerState, broadcast
from idiolect.data import Dataset
from idiolect.engines.client_packing import SINGLE
from idiolect.engines.evaluation import group_context, recalibrated
from idiolect.errors import UserError, unknown_name
from idiolect.experiments.finished.client_models import ClientModels
from idiolect.experiments.finished.exported_models import describe_model
from idiolect.experiments.finished.personal_model import (
    NETWORK,
    PersonalModel,
    PredictorState,
    finished_model,
    state_of,
)
from idiolect.experiments.finished.recorded_setting import (
    HERE,
    experiment_of,
    facts_of,
    final_program,
    rebuilt_setting,
    recorded_inputs,
)
from idiolect.experiments.rounds.personal_downloads import PersonalDownloads, kept_of_finished
from idiolect.experiments.setting import Inputs, Setting, prepare
from idiolect.federation import Store, stored_rows, to_dataset
from idiolect.models import build
from idiolect.records import Run, divergence_of, find_checkpoint, read_run
from idiolect.reports import runs_html

__all__ = ["FinishedRun", "open_run"]


class FinishedRun(Run, ClientModels):
    """A finished run with the models of its clients.

    Attributes:
        manifest: what the run was.
        rounds, rows: its tables.
        folder: where it lies.
    """

    data: Dataset | None = None
    data_dir: str | Path | None = None

    def __repr__(self) -> str:
        return f"<FinishedRun {self.name}: {len(self.clients)} clients>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the run's row of a report, and its curves."""
        return runs_html(f"{self.name}: {len(self.clients)} clients", [self])

    def __getstate__(self) -> None:
        """Leaves out what was read from the folder, which is read again."""

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    @property
    def clients(self) -> tuple[str, ...]:
        names = self.manifest.get("client_names") or range(len(self.manifest["class_counts"]))
        return tuple(str(name) for name in names)[: self.population]

    @cached_property
    def inputs(self) -> Inputs:
        return recorded_inputs(self.manifest)

    @property
    def source(self) -> dict[str, Any]:
        return dict(self.manifest["source"])

    @property
    def default_export_folder(self) -> Path:
        return self._place.with_name(f"{self._place.name}-models")

    def model(self, client: int | str, predictor: str | None = None) -> PersonalModel:
        number, name = self.number_of(client), self.member(predictor)
        context = self.context(number)
        found = self.program.predictors(context)
        if name not in found:
            raise unknown_name("predictor", name, [*found, *self.manifest["choices"]])
        statistics = self._statistics(number, name, found[name])
        return self._finished(name, state_of(self.program, context, name, statistics))

    def global_model(self) -> PersonalModel:
        setting, structure = self.setting, self.setting.task.structure
        if not setting.method.is_complete(structure):
            raise UserError(
                f"{self.manifest['label']} has no shared model: some layers never leave the clients; take the model of "
                "a client"
            )
        if structure.buffers and setting.experiment.buffers != "average":
            raise UserError(
                f"the server of {self.name} has no normalisation statistics, because buffers is "
                f"{setting.experiment.buffers}; take the model of a client"
            )
        predictor = self.program.shared_model(self.server)
        tree = {"params": predictor.params["model"], "buffers": predictor.buffers["model"]}
        if predictor.forward is None:
            return self._finished("global", PredictorState(NETWORK, tree, {}))
        nobody = Context(broadcast(setting.method, self.server), setting.first_private(0), self._facts(0), {})
        return self._finished("global", state_of(self.program, nobody, "global"))

    def describe(self, number: int | None, predictor: str | None) -> dict[str, Any]:
        name = None if number is None else self.clients[number]
        return describe_model(
            self.manifest,
            self.inputs,
            self.population,
            name,
            predictor or self.manifest["headline"],
            self.member(predictor),
        )

    def member(self, predictor: str | None) -> str:
        """Returns the predictor that a name stands for; one that was chosen on validation data is the chosen one."""
        name = predictor or str(self.manifest["headline"])
        return str(self.manifest["choices"].get(name, name))

    @cached_property
    def setting(self) -> Setting:
        """The setting of the run, without its data."""
        manifest = self.manifest
        return rebuilt_setting(
            manifest["spec"],
            self.inputs,
            manifest["architecture"],
            self.population,
            self.name,
            manifest.get("model_file"),
        )

    @cached_property
    def program(self) -> Program:
        """The method at the moment of the run's last evaluation."""
        return final_program(self.setting)

    @property
    def server(self) -> ServerState:
        """The server's state at the end of the run."""
        return cast("ServerState", self._checkpoint["server"])

    @property
    def vocabulary(self) -> int | None:
        """The number of tokens that the network knows; None where it reads numbers."""
        return build(self.manifest["model"], self.inputs.shape, self.inputs.n_classes).vocabulary

    def context(self, number: int) -> Context:
        """Returns what the predictors of a client are made of."""
        sent = self.downloads(self.setting).for_follow_up(self.program, self.server, [number])
        private = sent.with_own(self._private_rows.together([number]))[number]
        return Context(sent.shared, cast("PrivateState", private), self._facts(number), {})

    def downloads(self, setting: Setting) -> PersonalDownloads:
        """Returns what makes the server's messages to single clients, as at the end of the run.

        Args:
            setting: of the clients that get them, on whose device they are made.
        """
        kept = kept_of_finished(setting, self._place, self.population, self._checkpoint)
        return PersonalDownloads.of(setting, kept)

    @property
    def population(self) -> int:
        """The number of clients that could train."""
        return len(self.manifest["class_counts"]) - len(self.manifest["newcomers"])

    @cached_property
    def _checkpoint(self) -> dict[str, Any]:
        if (diverged := divergence_of(self.manifest)) is not None:
            raise UserError(
                f"{self.name} diverged in round {diverged.round} and has no models; make a run that ends, with a lower "
                "learning_rate or with clip_norm"
            )
        folder, rounds = self._place, self.setting.experiment.rounds
        found = find_checkpoint(folder, lambda sentence: None)
        if found is None:
            raise UserError(f"{folder} holds no checkpoint, so that its models are gone; make the run again")
        if found.round != rounds or not bool(found.tree["ended"]):
            raise UserError(f"{folder} is damaged: its last checkpoint cannot be read; make the run again")
        return found.tree

    @cached_property
    def _private_rows(self) -> Store:
        """The clients' private state, read from disk a client at a time."""
        if "private" not in self._checkpoint:
            raise UserError(
                f"{self.name} ran at sites, which keep their models; only the shared model is here: global_model()"
            )
        setting = self.setting
        return stored_rows(
            self._place,
            setting.first_private,
            setting.private_shapes,
            self.population,
            self._checkpoint["private"],
        )

    @property
    def _place(self) -> Path:
        if self.folder is None:
            raise UserError(f"the record of {self.name} was not read from a folder; open it by idiolect.open")
        return self.folder

    def _facts(self, number: int) -> Facts:
        last = self.manifest.get("at_end", self.manifest)  # where the data of clients changed during the run
        return facts_of(self.setting, last["class_counts"][number], last["samples"][number])

    def _finished(self, name: str, state: PredictorState) -> PersonalModel:
        return finished_model(self.program, self.inputs, name, state)

    def _statistics(self, number: int, name: str, predictor: Predictor) -> Flat | None:
        """Returns recomputed normalisation statistics where a predictor asks for them, which takes the run's data."""
        if not (predictor.recalibrate and self.setting.task.structure.buffers):
            return None
        with_data = self._with_data
        sent = self.downloads(self.setting).for_follow_up(self.program, self.server, [number])
        private = sent.with_own(self._private_rows.together([number]))
        work = with_data.work.at(self.program.clock.round)
        context = group_context(work, SINGLE, sent.shared, private)
        return recalibrated(self.program, work, SINGLE, context, [number])[name]

    @cached_property
    def _with_data(self) -> Setting:
        experiment = experiment_of(self.manifest["spec"], self.name)
        try:
            found = prepare(experiment, HERE, self.data_dir, self.data)
        except UserError as error:
            raise UserError(
                f"{self.manifest['label']} recomputes normalisation statistics on a client's training rows and the "
                f"data of {self.name} cannot be read ({error}); give them to idiolect.open as data"
            ) from error
        if found.federation.class_counts().tolist() != self.manifest["class_counts"]:
            raise UserError(
                f"the data are not those that {self.name} was trained on; give these to idiolect.open"
            )
        return found


def open_run(
    folder: str | Path, *, data: Any = None, data_dir: str | Path | None = None, **options: Any
) -> FinishedRun:
    """Opens the folder of a finished run: its tables, and the models that it trained.

    Args:
        folder: of one run.
        data: the data that the run was trained on, in any form that ``run`` takes; only mixtures of networks with batch
            normalisation need them.
        data_dir: the folder of datasets, where the run names one.
        options: how data are read, such as ``client_column``.

    Raises:
        UserError: the folder is no run, is unfinished, or is damaged.

    >>> import tempfile, idiolect, numpy as np
    >>> with tempfile.TemporaryDirectory() as out:
    ...     done = idiolect.run("fedper", rounds=1, clients=4, partition="iid", out=out, engine="loop")
    ...     labels = idiolect.open(done.folder).predict(np.zeros((2, 1, 28, 28), np.uint8), client=3)
    >>> labels.shape
    (2,)
    """
    run = FinishedRun(*read_run(folder))
    run.data, run.data_dir = (None if data is None else to_dataset(data, **options)), data_dir
    return run
