"""The manifest of a run: spec, origin of the data, versions and hardware."""

from __future__ import annotations

import dataclasses
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from idiolect.engines import EngineChoice
from idiolect.experiments.identity import architecture, hash_of
from idiolect.experiments.setting import Setting
from idiolect.experiments.spec import Experiment
from idiolect.methods import label, resolved
from idiolect.models import file_of_model
from idiolect.own_code import loaded_code

__all__ = ["describe_run", "notes_of", "versions"]


def describe_run(setting: Setting, engine_choice: EngineChoice) -> dict[str, Any]:
    """Returns the manifest of a run before it begins."""
    experiment = setting.experiment
    return {
        "method": experiment.method,
        "label": label(experiment.method),
        "options": [list(term) for term in resolved(experiment.method)],
        "parts": [part.name for part in setting.method.parts],
        "seed": experiment.seed,
        "headline": setting.headline,
        "metrics": {
            name: {"higher_is_better": m.higher_is_better, "low": m.low, "high": m.high, "unit": m.unit}
            for name, m in setting.metrics.items()
        },
        "primary_metric": setting.primary_metric,
        "dataset": experiment.dataset,
        "partition": experiment.partition,
        "model": experiment.model,
        **({"model_file": of_file._asdict()} if (of_file := file_of_model(experiment.model)) else {}),
        "architecture": architecture(experiment),
        "parameters": setting.n_parameters,
        "task": setting.inputs.task,
        "input_shape": setting.inputs.shape,
        "input_dtype": setting.inputs.dtype,
        "named_inputs": setting.inputs.named,
        "class_names": setting.inputs.class_names,
        "feature_names": setting.inputs.feature_names,
        "client_names": [str(name) for name in setting.federation.names],
        "preprocessing": setting.inputs.preprocessing.plain(),
        "spec": dataclasses.asdict(experiment),
        "spec_hash": hash_of(experiment),
        "engine": engine_choice._asdict(),
        "dropped": setting.partition_report,
        "source": setting.dataset_manifest,
        "class_counts": setting.federation.class_counts(),
        "samples": setting.federation.clients.sizes("train"),
        "newcomers": setting.federation.newcomers,
        "code": [code._asdict() for code in loaded_code()],
        "versions": versions(),
        "hardware": _hardware(engine_choice),
        "notes": notes_of(experiment),
    }


def versions() -> dict[str, str]:
    """Returns the versions of Idiolect and of what it computes with."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("idiolect", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "from source"
    return found


def _hardware(engine_choice: EngineChoice) -> dict[str, Any]:
    found: dict[str, Any] = {"machine": platform.machine(), "cores": len(os.sched_getaffinity(0))}
    if engine_choice.gpu_name is not None:
        found["gpu"] = engine_choice.gpu_name
    return found


def notes_of(experiment: Experiment) -> list[str]:
    """Returns the notes of a run that are known before it begins."""
    return [f"ran as {experiment.method}"] if "(" in experiment.method else []
