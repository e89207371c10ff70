"""The identity of a run: its name, with a hash of everything that changes its numbers.

The hash covers all defaults, in one spelling, so that a changed default or a changed network never finds an old record.
It leaves out settings with a neutral value, so that a setting that is added later renames no run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from idiolect import data, evaluation, methods, models, partition
from idiolect.core.optimiser import resolved_optimiser
from idiolect.core.schedule import resolved_local_schedule
from idiolect.errors import UserError
from idiolect.experiments.rounds.schedules import resolved_schedule
from idiolect.experiments.spec import NEUTRAL, Experiment
from idiolect.option_parsing import parse_call
from idiolect.records import run_name, spec_hash

__all__ = ["architecture", "family_of", "hash_of", "identity", "name_of", "refuse_repeated"]

WITH_OPTIONS: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "optimiser": resolved_optimiser,
    "schedule": resolved_schedule,
    "local_schedule": resolved_local_schedule,
}  # settings that are written as a call, by name


def name_of(experiment: Experiment) -> str:
    """Returns the name of a run, the same for every spelling of its method."""
    method = methods.shortest(experiment.method)
    return run_name(method, experiment.dataset, experiment.partition, hash_of(experiment), experiment.seed)


def refuse_repeated(methods: Sequence[str], experiments: Sequence[Experiment]) -> None:
    """Refuses methods of which two are the same in another spelling, or in the same one."""
    first: dict[str, str] = {}
    for method, hash in zip(methods, map(hash_of, experiments), strict=True):
        if hash in first:
            raise UserError(f"{first[hash]} and {method} are one method; give it once")
        first[hash] = method


def hash_of(experiment: Experiment) -> str:
    """Returns the hash of everything that changes numbers except the seed, which the name of a run states itself."""
    return spec_hash(identity(experiment))


def family_of(experiment: Experiment) -> str:
    """Returns the hash that all repetitions of an experiment share, whatever their seeds of training and data."""
    return hash_of(dataclasses.replace(experiment, data_seed=None))


def identity(experiment: Experiment) -> dict[str, Any]:
    """Returns what ``hash_of`` covers."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(experiment):
        value = getattr(experiment, field.name)
        if field.name in WITH_OPTIONS:
            value = WITH_OPTIONS[field.name](value)
            if value == WITH_OPTIONS[field.name](NEUTRAL[field.name]):
                continue
        if field.name not in NEUTRAL or value != NEUTRAL[field.name]:
            found[field.name] = float(value) if "float" in str(field.type) and value is not None else value
    del found["seed"]
    own = _own_code(experiment)
    return (
        found
        | ({"code": own} if own else {})
        | {
            "method": methods.resolved(experiment.method),
            "dataset": _or_text(data.resolved, experiment.dataset),
            "partition": _or_text(partition.resolved, experiment.partition),
            "model": _or_text(models.resolved, experiment.model),
            "architecture": architecture(experiment),
        }
    )


def _own_code(experiment: Experiment) -> dict[str, str]:
    """Returns digests of the registered functions that the run goes through; a network is known by what it computes."""
    sources = {
        "method": (methods.own_sources, experiment.method),
        "partition": (partition.own_sources, experiment.partition),
        "metric": (evaluation.own_sources, experiment.metrics),
    }
    found: dict[str, str] = {}
    for kind, (own_sources, text) in sources.items():
        with suppress(UserError):  # what cannot be read is refused when the run is prepared
            found |= {f"{kind} {name}": digest for name, digest in own_sources(text).items()}
    return found


def architecture(experiment: Experiment) -> str:
    """Returns a digest of the network; empty where it cannot be built, which is refused when the run is prepared."""
    try:
        own = data.is_registered(experiment.dataset)
        named = data.load(parse_call(experiment.dataset)[0]).inputs if own else ()
        return models.architecture(experiment.model, *data.sizes(experiment.dataset), named)
    except UserError:
        return ""


def _or_text(resolved: Callable[[str], Any], text: str) -> Any:
    """Returns all options; the text as it is where it cannot be read, which is refused when the run is prepared."""
    try:
        return resolved(text)
    except UserError:
        return text
