"""The run record: a folder written atomically and read by anyone, with or without torch.

What needs torch (checkpoints, exported models) is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from idiolect.records.atomic import replacing, write_atomically
from idiolect.records.folder import finished, finished_folder, partial_folder, run_name, spec_hash
from idiolect.records.hold import Hold
from idiolect.records.manifest import read_manifest
from idiolect.records.reader import Run, read_run, read_runs
from idiolect.records.rows import NO_CLIENT, ROUND_SCHEMA, ROW_SCHEMA, RoundBuffer, RowBuffer
from idiolect.records.writer import RunWriter

if TYPE_CHECKING:
    from idiolect.records.checkpoint import (
        checkpoint_tables,
        find_checkpoint,
        load_checkpoint,
        save_checkpoint,
    )
    from idiolect.records.models import export_model

__all__ = [
    "NO_CLIENT",
    "ROUND_SCHEMA",
    "ROW_SCHEMA",
    "Hold",
    "RoundBuffer",
    "RowBuffer",
    "Run",
    "RunWriter",
    "checkpoint_tables",
    "export_model",
    "find_checkpoint",
    "finished",
    "finished_folder",
    "load_checkpoint",
    "partial_folder",
    "read_manifest",
    "read_run",
    "read_runs",
    "replacing",
    "run_name",
    "save_checkpoint",
    "spec_hash",
    "write_atomically",
]

_NEEDS_TORCH = {
    "export_model": "idiolect.records.models",
    **dict.fromkeys(
        ("checkpoint_tables", "find_checkpoint", "load_checkpoint", "save_checkpoint"),
        "idiolect.records.checkpoint",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_NEEDS_TORCH[name]), name)
