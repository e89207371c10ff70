"""From options to an experiment: settings of --quick and --set, options of their own, and the scenario below them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from idiolect import data, methods
from idiolect.cli.config_file import SETTINGS, configured
from idiolect.cli.options import (
    RUN_OPTIONS,
    Changes,
    OwnDataOptions,
    ScenarioChoice,
    SceneOptions,
    SiteSceneOptions,
)
from idiolect.data import DEFAULT, Dataset
from idiolect.errors import UserError
from idiolect.experiments import Execution, Experiment, with_settings
from idiolect.experiments.execution import split_keywords
from idiolect.experiments.own_data import with_own_data
from idiolect.experiments.spec import unknown_setting
from idiolect.federation import to_dataset
from idiolect.models import load_model_file
from idiolect.option_parsing import literal_or_text, parse_call, split_outside_brackets
from idiolect.reproduction.papers import papers
from idiolect.reproduction.scenarios import find_scenario, refuse_missing_data

__all__ = [
    "all_settings",
    "methods_for",
    "methods_in",
    "names_in",
    "settings_alone",
    "settings_of",
    "start_from",
]

FLAGS = {"method": "--method or --methods", "seed": "--seed"}
RUN_FLAGS = {
    field: f"--{field.replace('_', '-')}" for field in RUN_OPTIONS
}  # which ``deploy init`` does not have
OWN_FLAGS = {field.name: f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(OwnDataOptions)}
ALSO = ("checkpoint_every",)  # the field of ``Execution`` that has no option and can be given by --set
QUICK: dict[str, Any] = {
    "rounds": 3,
    "clients": 10,
    "participation_rate": 0.5,
    "valid": 0.1,
    "test": 0.7,
    "evaluate_every": 3,
}


def settings_of(
    changes: Changes,
    scene: SceneOptions | SiteSceneOptions,
    own: OwnDataOptions | None = None,
    **flags: int | None,
) -> dict[str, Any]:
    """Returns the settings of the config, of --quick, of --set, and of options of their own; the last one wins.

    Args:
        own: data of the user's own, whose keywords are returned too.
        flags: settings whose options only this command has; None where not given.
    """
    elsewhere = FLAGS | RUN_FLAGS if isinstance(scene, SceneOptions) else FLAGS
    described = own.keywords() if own is not None else {}
    pairs = _set_pairs(changes, elsewhere | (OWN_FLAGS if own is not None else {}))
    if described and (scene.dataset is not None or "dataset" in pairs):
        raise UserError("--data and --dataset both say what to train on; give one of them")
    own_data = _read_own_data(described)
    loaded = {
        key: value for key, value in configured().settings.items() if not (own_data and key == "dataset")
    }
    chosen: dict[str, Any] = _quick_settings(own_data.get("data")) if changes.quick else {}
    chosen |= pairs
    given = dataclasses.asdict(scene) | flags
    if (file := given.pop("model_file", None)) is not None:
        if given["model"] is not None or "model" in chosen:
            raise UserError("--model-file and --model both name a network; give one of them")
        given["model"] = load_model_file(file)
    chosen |= {name: value for name, value in given.items() if value not in (None, [])}
    return loaded | chosen | own_data


def _set_pairs(changes: Changes, elsewhere: Mapping[str, str]) -> dict[str, Any]:
    """Returns the settings of --set; those that have an option of their own are refused by its name."""
    known = {field.name for field in dataclasses.fields(Experiment)} | {*ALSO}
    pairs: dict[str, Any] = {}
    for pair in changes.settings or []:
        key, equals, value = (word.strip() for word in pair.partition("="))
        if not equals:
            raise UserError(f"--set {pair!r} has no value; write --set key=value")
        if key in elsewhere:
            raise UserError(f"--set does not take {key}; use {elsewhere[key]}")
        if key not in known:
            raise unknown_setting(key)
        pairs[key] = literal_or_text(value)
    return pairs


def _read_own_data(given: dict[str, Any]) -> dict[str, Any]:
    """Returns data of the user's own as keywords of ``idiolect.run``, read once."""
    repartition = {key: given.pop(key) for key in ("repartition",) if key in given}
    return {"data": to_dataset(**given), **repartition} if given else {}


def _quick_settings(own: Dataset | None) -> dict[str, Any]:
    """Returns the settings of --quick; clients that the data name stay as they are."""
    if own is None or own.train_ids is None:
        return dict(QUICK)
    return {key: QUICK[key] for key in ("rounds", "evaluate_every")}


def methods_for(names: Sequence[str], settings: dict[str, Any], say: Callable[[str], None]) -> list[str]:
    """Returns the methods of a list that can serve data of the user's own, and says which cannot.

    Args:
        names: methods that nobody asked for by name.
        settings: those of the experiment, with the data.
    """
    own: Dataset | None = settings.get("data")
    if own is None and data.is_registered(settings.get("dataset", DEFAULT)):
        own = data.load(parse_call(settings["dataset"])[0])
    if own is None:
        return list(names)
    without_classes = [n for n in names if not own.has_classes and methods.method(n).needs_classes]
    without_public = [n for n in names if not len(own.test_y) and methods.method(n).needs_public]
    for left_out, need in (
        (without_classes, f"classes, which {own.task} has not"),
        (without_public, "public data"),
    ):
        if left_out:
            say(f"left out, because they need {need}: {', '.join(map(methods.shortest, left_out))}")
    return [name for name in names if name not in (*without_classes, *without_public)]


def start_from(
    choice: ScenarioChoice, settings: dict[str, Any], execution: Execution
) -> tuple[Callable[[str | None], Experiment] | None, Execution]:
    """Returns a function from a method to its experiment in the scenario, and the execution with the scenario's notes.

    The function takes None for the method of the scenario's paper; without a scenario there is no function.  A warning
    of the scenario is told to the watcher.
    """
    if choice.scenario is None:
        if choice.preset is not None:
            raise UserError(f"--preset {choice.preset} is of a scenario; give --scenario NAME too")
        return None, execution
    found, preset = find_scenario(choice.scenario), choice.preset or "paper"
    found.settings(preset)
    if not {"dataset", "data"} & settings.keys():
        refuse_missing_data(found, execution.data_dir)
    notes = [*execution.notes, f"scenario {found.name}, preset {preset}"]
    if warning := found.warning_of(preset):
        execution.watcher.say(f"warning: {warning}")
        notes.append(f"warning: {warning}")
    own = papers()[found.paper].method
    return lambda method: found.experiment(method or own, preset), dataclasses.replace(execution, notes=notes)


def all_settings(base: Experiment, chosen: dict[str, Any], in_scenario: bool = False) -> dict[str, Any]:
    """Returns every setting of an experiment with those chosen, but for method and seed, as a config holds them."""
    _, settings = split_keywords(None, with_own_data(chosen, alone=not in_scenario))
    experiment = with_settings(base, settings)
    return {name: getattr(experiment, name) for name in SETTINGS}


def settings_alone(chosen: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings among what was chosen, without options of the execution and of own data."""
    return {name: value for name, value in chosen.items() if name in SETTINGS}


def names_in(text: str | None) -> list[str]:
    """Returns names that are separated by commas."""
    return [name for name in split_outside_brackets(text or "", ",") if name]


def methods_in(text: str | None) -> list[str]:
    """Returns methods that are separated by commas; none where the option is not given, which is not an empty text."""
    names = names_in(text)
    if text is not None and not names:
        raise UserError(f"--methods {text!r} names no method; write names separated by commas, or all")
    return names
