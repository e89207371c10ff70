"""The scene of a run: the settings that make its clients comparable with those of another run.

Two runs of one scene and one data seed have the same clients with the same training and test rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["ALWAYS_NAMED", "SCENE_SETTINGS", "data_seed_of", "scene_of", "scene_settings"]

ALWAYS_NAMED = ("dataset", "partition", "model")
SCENE_SETTINGS: dict[str, Any] = {
    **dict.fromkeys(ALWAYS_NAMED, ""),
    "clients": 50,
    "newcomers": 0,
    "pool": "train",
    "client_test": "split",
    "valid": 0.2,
    "test": 0.2,
    "public": 0,
    "public_in_test": False,
    "under": (),
}  # and the values that a scene's name leaves out
DIGITS = 6  # of the hash


def scene_settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a run's scene; what an older record does not hold has its usual value."""
    spec = manifest.get("spec", {})
    found = {name: spec.get(name, manifest.get(name, usual)) for name, usual in SCENE_SETTINGS.items()}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}


def scene_of(manifest: Mapping[str, Any]) -> str:
    """Returns the name of a run's scene, equal for two runs exactly where all settings of the scene are.

    >>> scene_of({"dataset": "digits", "partition": "iid", "model": "mlpnet", "spec": {"clients": 8}})
    'digits, iid, mlpnet, clients=8 #9c00fd'
    """
    if "scene" in manifest:
        return str(manifest["scene"])
    settings = scene_settings(manifest)
    words = [str(settings[name]) for name in ALWAYS_NAMED if settings[name] != ""]
    words += [
        f"{name}={' + '.join(value) if isinstance(value, tuple) else value}"
        for name, value in settings.items()
        if name not in ALWAYS_NAMED and value != SCENE_SETTINGS[name]
    ]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return f"{', '.join(words)} #{digest[:DIGITS]}"


def data_seed_of(manifest: Mapping[str, Any]) -> int:
    """Returns the seed that drew a run's clients; in records that do not name it, the seed of the run."""
    return int(manifest.get("data_seed", manifest["seed"]))
