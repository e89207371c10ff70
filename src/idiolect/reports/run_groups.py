"""Groups runs by scene, and within a scene those that differ in nothing but their seeds; labels each group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from idiolect.errors import UserError
from idiolect.records import Run, scene_of, scene_settings
from idiolect.statistics import Replicate, on_one_machine, replicate_of

__all__ = [
    "SCENE",
    "SEEDS",
    "comparable_seconds",
    "flat",
    "group_runs",
    "identity_of",
    "scenes_of",
    "settings_of_run",
    "without_repeated_clients",
]

SCENE = ("dataset", "partition", "model")
SEEDS = ("seed", "seeds", "data_seed")
MOST_SETTINGS = 3
OPTIONS = "options."  # prefix of a method's options among the settings


def group_runs(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Groups runs that differ in nothing but their seeds, in order of appearance, and sorts each group by seeds.

    A group is labelled by its method; where two groups share a label, the settings in which they differ follow it.

    Raises:
        UserError: there is no run, or one pair of seeds occurs twice within a group.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(identity_of(run), []).append(run)
    if not groups:
        raise UserError("there is no finished run to report on")
    ordered = [sorted(group, key=replicate_of) for group in groups.values()]
    for group in ordered:
        _refuse_repeated_seed(group)
    return dict(zip(_labels([group[0] for group in ordered]), ordered, strict=True))


def comparable_seconds(runs: Iterable[Run]) -> bool:
    """Returns whether the seconds of runs can stand in one table: there is one run, or all come from one machine."""
    runs = list(runs)
    return len(runs) == 1 or on_one_machine(runs)


def scenes_of(runs: Iterable[Run]) -> dict[str, dict[str, list[Run]]]:
    """Groups runs by scene, in order of appearance, and the runs of each scene as `group_runs` does.

    Only runs of one scene can be compared client by client.  A scene is named by the settings in which it differs from
    the others, or by its dataset, partition and model where there is no other.
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(scene_of(run.manifest), []).append(run)
    if not found:
        raise UserError("there is no finished run to report on")
    names = _scene_names({scene: group[0] for scene, group in found.items()})
    return {names[scene]: group_runs(group) for scene, group in found.items()}


def _scene_names(firsts: Mapping[str, Run]) -> dict[str, str]:
    """Returns a short name for each scene, given one run of each."""
    settings = {scene: scene_settings(run.manifest) for scene, run in firsts.items()}
    every = list(settings.values())
    told = [name for name in every[0] if len({str(one[name]) for one in every}) > 1]
    if len(every) == 1:
        told = list(SCENE)
    if any(one["under"] for one in every):
        told = list(dict.fromkeys([*told, "under"]))
    names = {
        scene: ", ".join(text for name in told if (text := _scene_text(name, one[name])))
        for scene, one in settings.items()
    }
    clear = len(set(names.values())) == len(names) and all(names.values())
    return names if clear else {scene: scene for scene in names}


def without_repeated_clients(firsts: Mapping[str, Run]) -> list[str]:
    """Returns the scenes that have clients of their own: of a scene and its disturbed versions, the undisturbed one.

    Tests over scenes count each as one independent observation, which versions of one scene are not.

    Args:
        firsts: one run of each scene, by the scene's name.
    """
    chosen: dict[str, tuple[bool, str]] = {}
    for name, run in firsts.items():
        settings = scene_settings(run.manifest)
        disturbed = bool(settings.pop("under"))
        key = json.dumps(settings, sort_keys=True)
        if key not in chosen or (chosen[key][0] and not disturbed):
            chosen[key] = disturbed, name
    kept = {name for _, name in chosen.values()}
    return [name for name in firsts if name in kept]


def _scene_text(name: str, value: Any) -> str:
    if name == "under":
        return f"under {' and '.join(value)}" if value else "undisturbed"
    return str(value) if name in SCENE else f"{name}={value}"


def identity_of(run: Run) -> str:
    """Returns a key that is equal for runs that differ in nothing but their seeds."""
    manifest = run.manifest
    known = manifest.get("family_hash") or manifest.get("spec_hash")
    return str(known or json.dumps(settings_of_run(run), sort_keys=True))


def settings_of_run(run: Run) -> dict[str, Any]:
    """Returns all settings of a run without its seeds, as a flat dict."""
    manifest = run.manifest
    scene = {key: manifest[key] for key in SCENE if key in manifest}
    spec = {key: value for key, value in manifest.get("spec", {}).items() if key not in SEEDS}
    resolved = flat(dict(manifest.get("options", [])), OPTIONS)
    resolved["architecture"] = str(manifest.get("architecture", ""))[:8]
    return {"label": _label(run), "method": manifest["method"], **scene, **flat(spec), **resolved}


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested settings under dotted names."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found.update(flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def _label(run: Run) -> str:
    return str(run.manifest.get("label") or run.manifest["method"])


def _labels(firsts: list[Run]) -> list[str]:
    labels = []
    for run in firsts:
        namesakes = [settings_of_run(other) for other in firsts if _label(other) == _label(run)]
        labels.append(
            _label(run) if len(namesakes) == 1 else f"{_label(run)} ({_difference(run, namesakes)})"
        )
    if len(set(labels)) == len(labels):
        return labels
    return [f"{label} #{position + 1}" for position, label in enumerate(labels)]


def _difference(run: Run, namesakes: list[dict[str, Any]]) -> str:
    """Returns the settings in which a run differs from runs with the same label, or its hash if they are too many."""
    own = settings_of_run(run)
    keys = {
        key
        for settings in namesakes
        for key in settings.keys() | own.keys()
        if settings.get(key) != own.get(key)
    }
    if "method" in keys:  # its text names the options
        keys = {key for key in keys if not key.startswith(OPTIONS)}
    told = sorted(keys & set(SCENE)) or sorted(keys)
    if len(told) > MOST_SETTINGS and "spec_hash" in run.manifest:
        return str(run.manifest["spec_hash"])[:8]
    if told == ["method"]:
        return str(run.manifest["method"]).partition("(")[2].removesuffix(")") or "defaults"
    return ", ".join(f"{key.rpartition('.')[2]}={own.get(key, '-')}" for key in told[:MOST_SETTINGS])


def _refuse_repeated_seed(group: list[Run]) -> None:
    names: dict[Replicate, str] = {}
    for run in group:
        data_seed, seed = replicate = replicate_of(run)
        if replicate in names:
            seeds = f"seed {seed}" if seed == data_seed else f"seed {seed} and data seed {data_seed}"
            raise UserError(
                f"{_label(run)} has two runs with {seeds}: {names[replicate]} and {run.manifest['name']}"
            )
        names[replicate] = run.manifest["name"]
