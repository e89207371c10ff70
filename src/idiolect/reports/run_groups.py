"""Groups runs that differ in nothing but the seed, and labels each group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from idiolect.errors import UserError
from idiolect.records import Run

__all__ = ["SCENE", "flat", "group_runs"]

SCENE = ("dataset", "partition", "model")
MOST_SETTINGS = 3
OPTIONS = "options."  # prefix of a method's options among the settings


def group_runs(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Groups runs that differ in nothing but the seed, in order of appearance, and sorts each group by seed.

    A group is labelled by its method; where two groups share a label, the settings in which they differ follow it.

    Raises:
        UserError: there is no run, or one seed occurs twice within a group.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_identity(run), []).append(run)
    if not groups:
        raise UserError("there is no finished run to report on")
    ordered = [sorted(group, key=lambda run: int(run.manifest["seed"])) for group in groups.values()]
    for group in ordered:
        _refuse_repeated_seed(group)
    return dict(zip(_labels([group[0] for group in ordered]), ordered, strict=True))


def _identity(run: Run) -> str:
    """Returns a key that is equal for runs that differ in nothing but the seed."""
    return str(run.manifest.get("spec_hash") or json.dumps(_settings(run), sort_keys=True))


def _settings(run: Run) -> dict[str, Any]:
    """Returns all settings of a run without the seed, as a flat dict."""
    manifest = run.manifest
    scene = {key: manifest[key] for key in SCENE if key in manifest}
    spec = {key: value for key, value in manifest.get("spec", {}).items() if key not in {"seed", "seeds"}}
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
        namesakes = [_settings(other) for other in firsts if _label(other) == _label(run)]
        labels.append(
            _label(run) if len(namesakes) == 1 else f"{_label(run)} ({_difference(run, namesakes)})"
        )
    if len(set(labels)) == len(labels):
        return labels
    return [f"{label} #{position + 1}" for position, label in enumerate(labels)]


def _difference(run: Run, namesakes: list[dict[str, Any]]) -> str:
    """Returns the settings in which a run differs from runs with the same label, or its hash if they are too many."""
    own = _settings(run)
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
    names: dict[int, str] = {}
    for run in group:
        seed = run.manifest["seed"]
        if seed in names:
            raise UserError(
                f"{_label(run)} has two runs with seed {seed}: {names[seed]} and {run.manifest['name']}"
            )
        names[seed] = run.manifest["name"]
