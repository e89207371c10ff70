"""What a run is known by: a hash of everything that changes its numbers, however it was written.

Defaults are spelled out and spellings made one, so that a changed default or a changed network never gives back an
old record.  A setting that is neutral is left out, so that a setting which is added later renames no run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from idiolect import data, methods, models, partition
from idiolect.errors import UserError
from idiolect.experiments.spec import NEUTRAL, Experiment
from idiolect.records import run_name, spec_hash

__all__ = ["architecture", "hash_of", "identity", "name_of"]


def name_of(experiment: Experiment) -> str:
    """The name of a run, the same for every spelling of its method."""
    method = methods.shortest(experiment.method)
    return run_name(method, experiment.dataset, experiment.partition, hash_of(experiment), experiment.seed)


def hash_of(experiment: Experiment) -> str:
    """Hash of everything that changes numbers but the seed, which stands in a run's name by itself."""
    return spec_hash(identity(experiment))


def identity(experiment: Experiment) -> dict[str, Any]:
    """What ``hash_of`` covers."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(experiment):
        value = getattr(experiment, field.name)
        if field.name not in NEUTRAL or value != NEUTRAL[field.name]:
            found[field.name] = float(value) if "float" in str(field.type) and value is not None else value
    del found["seed"]
    return found | {
        "method": methods.resolved(experiment.method),
        "dataset": _or_text(data.resolved, experiment.dataset),
        "partition": _or_text(partition.resolved, experiment.partition),
        "model": _or_text(models.resolved, experiment.model),
        "architecture": architecture(experiment),
    }


def architecture(experiment: Experiment) -> str:
    """Digest of the network; nothing where it cannot be built, which is said when the run is prepared."""
    try:
        return models.architecture(experiment.model, *data.sizes(experiment.dataset))
    except UserError:
        return ""


def _or_text(resolved: Callable[[str], Any], text: str) -> Any:
    """All options; the text as it is where it is refused, which is said when the run is prepared."""
    try:
        return resolved(text)
    except UserError:
        return text
