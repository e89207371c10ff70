"""The setting of a finished run, rebuilt from its record alone: method, network and preprocessing, without any data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch

from idiolect import methods, models
from idiolect.core import Facts, Program
from idiolect.data import CLASS_TASKS
from idiolect.engines import EngineChoice
from idiolect.errors import UserError
from idiolect.experiments.setting import Inputs, Setting, assemble
from idiolect.experiments.spec import Experiment
from idiolect.federation import ClientRows, Clients, Federation
from idiolect.option_parsing import parse_call

__all__ = ["HERE", "experiment_of", "facts_of", "final_program", "rebuilt_setting", "recorded_inputs"]

HERE = EngineChoice("loop", "cpu", "models of a finished run")
INPUTS = {
    "shape": "input_shape",
    "n_classes": "n_classes",
    "preprocessing": "preprocessing",
    "task": "task",
    "dtype": "input_dtype",
    "class_names": "class_names",
    "feature_names": "feature_names",
    "named": "named_inputs",
}  # fields of ``Inputs`` and where a manifest records them
NO_ROWS = np.empty(0, np.int64)


def rebuilt_setting(
    spec: Mapping[str, Any],
    inputs: Inputs,
    architecture: str,
    population: int,
    name: str,
    model_file: Mapping[str, str] | None = None,
) -> Setting:
    """Returns the setting in which a run ended, with clients that hold no rows.

    Args:
        spec: all settings of the experiment.
        architecture: the digest of the network that was trained; empty if it was not recorded.
        name: what an error calls the run.
        model_file: the recorded file that the network comes from, which is loaded unless it is.

    Raises:
        UserError: the run was made with a model or method of code that is not loaded, or by another version.
    """
    experiment = experiment_of(spec, name)
    if model_file and parse_call(experiment.model)[0] not in models.names():
        models.load_recorded(models.ModelFile(**model_file))
    _refuse_unloaded(experiment, name)
    sizes = inputs.shape, inputs.n_classes, inputs.named
    if architecture and architecture != models.architecture(experiment.model, *sizes):
        raise UserError(
            f"{name} was trained with another network of the name {experiment.model} than the one that is loaded; load "
            "the code that the run was made with"
        )
    return assemble(experiment, HERE, _without_rows(inputs, population), inputs, held=[])


def experiment_of(spec: Mapping[str, Any], name: str) -> Experiment:
    """Returns the experiment of a run from its recorded settings."""
    unknown = set(spec) - {field.name for field in fields(Experiment)}
    if unknown:
        raise UserError(
            f"{name} was made by another version of Idiolect: there is no setting {min(unknown)} here"
        )
    return Experiment(**spec)


def recorded_inputs(manifest: Mapping[str, Any]) -> Inputs:
    """Returns what the network of a run knows of its inputs and outputs.

    Raises:
        UserError: the run was made before this was recorded.
    """
    known = {**manifest, "n_classes": len(manifest["class_counts"][0])}
    missing = [key for key in INPUTS.values() if key not in known]
    if missing:
        raise UserError(
            f"{manifest['name']} does not record its {missing[0].replace('_', ' ')}, so that its models cannot be "
            "rebuilt; make the run again with this version of Idiolect"
        )
    return Inputs.of_plain({field: known[key] for field, key in INPUTS.items()})


def final_program(setting: Setting, newcomer: bool = False) -> Program:
    """Returns the method at the moment of a run's last evaluation: its end where it has stages then.

    Args:
        newcomer: the program is for clients who joined after the run.
    """
    experiment = setting.experiment
    if newcomer:
        return setting.program(experiment.rounds, newcomer=True)
    program = setting.program(experiment.rounds)
    ends = program.method.plan(program.scene, program.clock).end
    return program if ends else setting.program(experiment.rounds - 1)


def facts_of(setting: Setting, class_counts: Sequence[int], samples: int) -> Facts:
    """Returns the facts of a client from its counts."""
    like = setting.work.like
    counts, number = (torch.tensor(value).to(like) for value in (class_counts, samples))
    weighted = setting.experiment.weighting == "samples"
    return Facts(counts, number, number if weighted else torch.ones_like(number))


def _refuse_unloaded(experiment: Experiment, name: str) -> None:
    model = parse_call(experiment.model)[0]
    if model not in models.names():
        raise UserError(
            f"{name} was trained with the model {model}, which is not loaded; load the file that registers it first, "
            "by --code or --model-file, or call register_model"
        )
    try:
        methods.method(experiment.method)
    except UserError as error:
        raise UserError(
            f"{name} was trained with the method {experiment.method}, which is not loaded ({error}); load the file "
            "that registers it first, by --code or by import"
        ) from None


def _without_rows(inputs: Inputs, population: int) -> Federation:
    """Returns the clients of the run, none of whom holds a row."""
    tokens = inputs.dtype == "int64"
    row = inputs.shape[2:] if tokens else inputs.shape
    x = np.empty((0, *row), np.int64 if tokens else np.float32)
    y = NO_ROWS if inputs.task in CLASS_TASKS else np.empty((0, inputs.n_classes), np.float32)
    clients = Clients([ClientRows(NO_ROWS, NO_ROWS, NO_ROWS)] * population)
    return Federation(
        x,
        y,
        x,
        y,
        inputs.n_classes,
        clients,
        NO_ROWS,
        task=inputs.task,
        preprocessing=inputs.preprocessing,
    )
