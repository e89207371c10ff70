"""The manifest of a run: one JSON document that says what the run was, sealed by a checksum over what it says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from idiolect.errors import UserError
from idiolect.records.atomic_files import write_atomically
from idiolect.records.manifest_fields import REQUIRED, wrong_field

__all__ = ["CHECKSUM", "FORMAT", "MANIFEST", "checksum_of", "read_manifest", "write_manifest"]

FORMAT = "idiolect-run-2"
UNSEALED = "idiolect-run-1"  # of versions before, whose manifests have no checksum
CHECKSUM = "checksum"
MANIFEST = "manifest.json"


def write_manifest(folder: Path, manifest: Mapping[str, Any], indent: int | None = 2) -> Path:
    """Writes the manifest atomically; arrays and numpy scalars become lists and numbers.

    Raises:
        ValueError: a key that every reader needs is missing, or a number is not finite.
    """
    missing = [key for key in REQUIRED if key not in manifest]
    if missing:
        raise ValueError(f"the manifest lacks {', '.join(missing)}")
    plain = json.loads(json.dumps({**manifest, "format": FORMAT}, allow_nan=False, default=_as_plain))
    document = {"format": FORMAT, **plain, CHECKSUM: checksum_of(plain)}
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return write_atomically(folder / MANIFEST, text + "\n")


def checksum_of(document: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of what a document says, whatever the order of its keys and its spaces."""
    said = {key: value for key, value in document.items() if key != CHECKSUM}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _as_plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a manifest cannot hold {value!r} ({type(value).__name__})")


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it holds {name}, which is no number")


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """Reads the manifest of a finished or unfinished run.

    Raises:
        UserError: there is none, it is damaged, or it belongs to something else.
    """
    path = Path(folder) / MANIFEST
    if not Path(folder).is_dir():
        raise UserError(f"{folder} is not a folder; a run is a folder with a {MANIFEST}")
    if not path.is_file():
        inside = sorted(one.parent.name for one in Path(folder).glob(f"*/{MANIFEST}"))
        if inside:
            raise UserError(f"{folder} is not a run but holds runs; give one of them: {', '.join(inside)}")
        raise UserError(f"{folder} is not a run: it has no {MANIFEST}")
    try:
        manifest = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
        json.dumps(manifest, ensure_ascii=False).encode()  # half a character cannot be written into a report
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") not in (FORMAT, UNSEALED):
        raise UserError(f"{folder} is not a run of this library: its {MANIFEST} has no format {FORMAT!r}")
    if (CHECKSUM in manifest or manifest["format"] == FORMAT) and manifest.pop(CHECKSUM, "") != checksum_of(
        manifest
    ):
        raise UserError(f"{path} is damaged: what it says does not match its checksum")
    missing = [key for key in REQUIRED if key not in manifest]
    if missing:
        raise UserError(f"{path} is damaged: it lacks {', '.join(missing)}")
    if (wrong := wrong_field(manifest)) is not None:
        raise UserError(f"{path} is damaged: its {wrong} is not what a run writes there")
    return manifest
