"""The manifest of a run: spec, origin of the data, versions and hardware."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from idiolect.engines import EngineChoice
from idiolect.errors import UserError
from idiolect.experiments.identity import architecture, family_of, hash_of
from idiolect.experiments.rounds.privacy_budget import PrivacyBudget
from idiolect.experiments.run_binding import package_digests, versions
from idiolect.experiments.setting import Setting
from idiolect.experiments.spec import Experiment
from idiolect.methods import label, resolved
from idiolect.models import file_of_model
from idiolect.option_parsing import parse_call, write_call
from idiolect.own_code import loaded_code
from idiolect.records import scene_of

__all__ = ["describe_run", "notes_of"]


def describe_run(setting: Setting, engine_choice: EngineChoice) -> dict[str, Any]:
    """Returns the manifest of a run before it begins."""
    experiment = setting.experiment
    return {
        "method": experiment.method,
        "label": label(experiment.method),
        "options": [list(term) for term in resolved(experiment.method)],
        "parts": [part.name for part in setting.method.parts],
        "seed": experiment.seed,
        "data_seed": experiment.seed_of_data,
        "scene": scene_of({"spec": _written_alike(experiment)}),
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
        **_inputs(setting),
        "spec": dataclasses.asdict(experiment),
        "spec_hash": hash_of(experiment),
        "family_hash": family_of(experiment),
        "engine": engine_choice._asdict(),
        "dropped": setting.partition_report,
        "source": setting.dataset_manifest,
        "class_counts": setting.federation.class_counts(),
        "samples": setting.federation.clients.sizes("train"),
        **_disturbed(setting),
        "newcomers": setting.federation.newcomers,
        "data_digests": dict(setting.data_digests),
        "package_digests": package_digests(),
        "code": [code._asdict() for code in loaded_code()],
        "versions": versions(),
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": _hardware(engine_choice),
        "notes": notes_of(experiment),
        **PrivacyBudget(setting).facts(experiment.rounds),
    }


def _inputs(setting: Setting) -> dict[str, Any]:
    """Returns what the network reads and puts out, and the names that the data give."""
    inputs = setting.inputs
    return {
        "task": inputs.task,
        "input_shape": inputs.shape,
        "input_dtype": inputs.dtype,
        "named_inputs": inputs.named,
        "class_names": inputs.class_names,
        "feature_names": inputs.feature_names,
        "client_names": [str(name) for name in setting.federation.names],
        "preprocessing": inputs.preprocessing.plain(),
    }


def _disturbed(setting: Setting) -> dict[str, Any]:
    """Returns whose data a disturbance changed, and the counts at the end where data changed during the run."""
    federation = setting.federation
    found: dict[str, Any] = {}
    if federation.disturbed:
        found["disturbed"] = {text: list(clients) for text, clients in federation.disturbed}
    if federation.later:
        last = federation.at(setting.experiment.rounds)
        found["at_end"] = {"class_counts": last.class_counts(), "samples": last.clients.sizes("train")}
    return found


def _hardware(engine_choice: EngineChoice) -> dict[str, Any]:
    found: dict[str, Any] = {
        "machine": platform.machine(),
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }
    if engine_choice.gpu_name is not None:
        found["gpu"] = engine_choice.gpu_name
    return found


def _processor() -> str:
    """Returns the name of the processor, or an empty text where the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


@cache
def source_commit() -> str | None:
    """Returns the commit of the source, with ``+`` where files differ from it; None for an installed package."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        asked = ["git", "-C", str(here), *words]
        return subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True).stdout.strip()

    try:
        if not git(
            "ls-files", Path(__file__).name
        ):  # an environment that lies inside someone else's repository
            return None
        return git("rev-parse", "HEAD") + (
            "+" if git("status", "--porcelain", "--", str(here.parent)) else ""
        )
    except (OSError, subprocess.SubprocessError):
        return None


def _written_alike(experiment: Experiment) -> dict[str, Any]:
    """Returns the settings with names and options in one spelling."""
    spec = dataclasses.asdict(experiment)
    for name in ("dataset", "partition", "model"):
        with suppress(UserError):
            spec[name] = write_call(*parse_call(spec[name]))
    return spec


def notes_of(experiment: Experiment) -> list[str]:
    """Returns the notes of a run that are known before it begins."""
    return [f"ran as {experiment.method}"] if "(" in experiment.method else []
