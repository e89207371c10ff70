"""The folder of a run and its name: `<out>/<name>` once finished, `<out>/<name>.partial` until then."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from idiolect.errors import UserError
from idiolect.records.manifest import MANIFEST, read_manifest

__all__ = ["PARTIAL_SUFFIX", "finished", "finished_folder", "partial_folder", "run_name", "spec_hash"]

PARTIAL_SUFFIX = ".partial"
LONGEST_WORD = 60


def spec_hash(spec: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of a spec's canonical JSON (sorted keys, no spaces); names use its first 8 digits.

    >>> spec_hash({"rounds": 5, "rate": 0.1}) == spec_hash({"rate": 0.1, "rounds": 5})
    True
    """
    canonical = json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def run_name(method: str, dataset: str, partition: str, spec_hash: str, seed: int) -> str:
    """Returns the name of a run: readable in front, and unique through the hash.

    >>> run_name("MAP + proximal(0.1)", "digits", "dirichlet_0.5", "0123456789abcdef", 3)
    'map-proximal-0.1-digits-dirichlet-0.5-01234567-s3'
    """
    words = [_plain(word) for word in (method, dataset, partition)]
    return "-".join([*(word for word in words if word), spec_hash[:8], f"s{seed}"])


def _plain(word: str) -> str:
    """Returns the word in lower case, with one hyphen for every stretch of characters outside [a-z0-9.]."""
    return re.sub(r"[^a-z0-9.]+", "-", word.lower())[:LONGEST_WORD].strip("-.")


def finished_folder(out_dir: str | Path, name: str) -> Path:
    """Returns the folder of a finished run."""
    return Path(out_dir) / name


def partial_folder(out_dir: str | Path, name: str) -> Path:
    """Returns the folder of an unfinished run, which holds its checkpoints."""
    return Path(out_dir) / f"{name}{PARTIAL_SUFFIX}"


def finished(out_dir: str | Path, name: str) -> bool:
    """Returns whether the run is finished, so that a caller may skip it.

    Raises:
        UserError: its folder is there with a manifest that is damaged.
    """
    folder = finished_folder(out_dir, name)
    if not (folder / MANIFEST).is_file():
        return False
    try:
        return bool(read_manifest(folder)["status"] == "finished")
    except UserError as error:
        raise UserError(f"{error}; move {folder} away to make the run again") from error
