"""What a run is bound to: its data, the code that computed it, and the versions of packages.

An interrupted run goes on with the data, code and versions that it began with; its checkpoints remember them.  A
finished run is read with its own data alone; other code or versions than today's are named in a note.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import idiolect
from idiolect.errors import UserError
from idiolect.experiments.setting import read_dataset
from idiolect.experiments.spec import Experiment
from idiolect.own_code import loaded_code
from idiolect.records import SavedCheckpoint, finished_folder, read_manifest
from idiolect.records.run_naming import PARTIAL_SUFFIX

__all__ = [
    "bound",
    "changes_on_resume",
    "note_on_changes",
    "package_digests",
    "refuse_data_of_another_name",
    "versions",
]

ROOMS = (
    "core",
    "data",
    "engines",
    "evaluation",
    "experiments",
    "federation",
    "methods",
    "models",
    "partition",
    "parts",
)  # what decides numbers; reports, the command line and so on may change between the parts of a run
BOUND = ("data_digests", "package_digests", "code", "versions")


@cache
def package_digests() -> dict[str, str]:
    """Returns the SHA-256 of the source files of each room that decides numbers."""
    root = Path(idiolect.__file__).parent
    found = {}
    for room in ROOMS:
        whole = hashlib.sha256()
        for path in sorted((root / room).rglob("*.py")):
            whole.update(str(path.relative_to(root)).encode())
            whole.update(path.read_bytes())
        found[room] = whole.hexdigest()
    return found


def versions() -> dict[str, str]:
    """Returns the versions of Idiolect and of what it computes with."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("idiolect", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "from source"
    return found


def bound(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a manifest says of data, code and versions, as a checkpoint remembers it."""
    return {key: manifest[key] for key in (*BOUND, "accepted") if key in manifest}


def changes_on_resume(
    folder: Path, found: SavedCheckpoint, now: Mapping[str, Any], accept: bool
) -> list[dict[str, Any]]:
    """Returns the changes of code and versions that a run has gone through, with those of today.

    Args:
        folder: of the interrupted run.
        found: the checkpoint that it goes on from.
        now: the manifest of the run as it would begin today.
        accept: whether other code or versions are accepted.

    Raises:
        UserError: an interrupted run began with other data, or, unless they are accepted, with other code or versions.
    """
    _refuse_other_data(str(folder), found.bound, now)
    accepted, changed = list(found.bound.get("accepted", ())), _other_code(found.bound, now)
    if changed and not accept:
        raise UserError(
            f"{folder} was begun with other code: {'; '.join(changed)}; go on with the code that it began with, add "
            "--accept-changes (accept_changes=True), which the record keeps, or start it afresh"
        )
    return [*accepted, {"round": found.round, "changed": changed}] if changed else accepted


def note_on_changes(experiment: Experiment, name: str, out: str | Path, data_dir: str | Path | None) -> str:
    """Returns what a user should know before a finished run is read again; empty if all is as it was.

    Raises:
        UserError: the run was made with other data than those of today.
    """
    folder = finished_folder(out, name)
    manifest = read_manifest(folder)
    today: dict[str, Any] = {
        "package_digests": package_digests(),
        "versions": versions(),
        "code": [code._asdict() for code in loaded_code()],
    }
    notes = []
    if "data_digests" not in manifest:
        notes.append("it does not record its data, which are not compared")
    else:
        try:
            today["data_digests"] = read_dataset(experiment.dataset, data_dir).digests
        except UserError as error:
            notes.append(f"its data are not compared, because they cannot be read ({error})")
        else:
            _refuse_other_data(str(folder), manifest, today)
    changed = (
        _other_code(manifest, today) if "package_digests" in manifest else _other_versions(manifest, today)
    )
    return "; ".join([*notes, *(f"it was made with other code: {change}" for change in changed)])


def refuse_data_of_another_name(experiment: Experiment, out: str | Path, now: Mapping[str, Any]) -> None:
    """Refuses to begin a run that was to be resumed, where the same one of other data was interrupted.

    Data of one's own are part of a run's name, so that other data make another run.
    """
    asked = json.loads(json.dumps(dataclasses.asdict(experiment)))
    for folder in sorted(Path(out).glob(f"*{PARTIAL_SUFFIX}")):
        with suppress(UserError):
            manifest = read_manifest(folder)
            spec = dict(manifest.get("spec", {}))
            if _stem(spec.pop("dataset", "")) == _stem(asked["dataset"]) and spec.items() <= asked.items():
                found = manifest
                break
    else:
        return
    _refuse_other_data(str(folder), found, now)


def _stem(dataset: str) -> str:
    """Returns the name of a dataset without the digest that those of the user's own end in."""
    return re.sub(r"-[0-9a-f]{8}$", "", dataset)


def _refuse_other_data(name: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    known, given = then.get("data_digests"), now["data_digests"]
    if not known or not given:
        return
    other = [what for what in {**known, **given} if known.get(what) != given.get(what)]
    if other:
        raise UserError(
            f"{name} was made with other data, which differ in: {', '.join(other)}; give it the data that it was made "
            "with, or another folder with --out"
        )


def _other_code(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns what differs between two states of the code, in words."""
    if "package_digests" not in then:
        return ["it does not record its code and data, as this version of Idiolect does"]
    known, given = then["package_digests"], now["package_digests"]
    changed = _other_versions(then, now)
    rooms = [room for room in {**known, **given} if known.get(room) != given.get(room)]
    if rooms:
        changed.append(f"Idiolect's own source differs in {', '.join(rooms)}")
    return changed + _other_files(then["code"], now["code"])


def _other_versions(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    known, given = then.get("versions", {}), now["versions"]
    return [
        f"{package} {known.get(package, 'none')}, now {given.get(package, 'none')}"
        for package in {**known, **given}
        if known.get(package) != given.get(package)
    ]


def _other_files(then: list[dict[str, str]], now: list[dict[str, str]]) -> list[str]:
    """Returns files and modules of the user's own that were loaded then, and are loaded with another text now.

    What is loaded only now changes nothing, and what is not loaded now was not needed, or its names would be missing.
    """
    texts = {code["sha256"] for code in now}
    sources = {Path(code["source"]).name for code in now}
    return [
        f"{code['source']} has another text"
        for code in then
        if code["sha256"] not in texts and Path(code["source"]).name in sources
    ]
