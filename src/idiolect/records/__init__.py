"""The record of a run: a folder that is written atomically and can be read without torch.

Checkpoints and exported models need torch; they are loaded at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from idiolect.records.atomic_files import file_digest, replacing, write_atomically
from idiolect.records.discovery import FoundRun, find_runs, folders_of_runs
from idiolect.records.divergence import Divergence, divergence_of
from idiolect.records.json_files import read_json_object
from idiolect.records.manifest import read_manifest
from idiolect.records.reader import Run, read_run, read_runs
from idiolect.records.run_naming import finished, finished_folder, partial_folder, run_name, spec_hash
from idiolect.records.scene import SCENE_SETTINGS, data_seed_of, scene_of, scene_settings
from idiolect.records.tables import (
    CALIBRATION_SCHEMA,
    CONFUSION_SCHEMA,
    COST_SCHEMA,
    MOMENTS,
    NO_CLIENT,
    POPULATIONS,
    ROUND_SCHEMA,
    ROW_SCHEMA,
    SPLITS,
    CountBuffer,
    CountKind,
    RoundBuffer,
    RowBuffer,
    RowKind,
    write_table,
)
from idiolect.records.write_lock import WriteLock
from idiolect.records.writer import RunWriter

if TYPE_CHECKING:
    from idiolect.records.checkpoints import (
        CheckpointName,
        SavedCheckpoint,
        checkpoint_tables,
        drop_older_checkpoint,
        find_checkpoint,
        load_checkpoint,
        remove_checkpoints,
        save_checkpoint,
    )
    from idiolect.records.tensor_files import DamagedFile, export_model, read_plain_tensors

__all__ = [
    "CALIBRATION_SCHEMA",
    "CONFUSION_SCHEMA",
    "COST_SCHEMA",
    "MOMENTS",
    "NO_CLIENT",
    "POPULATIONS",
    "ROUND_SCHEMA",
    "ROW_SCHEMA",
    "SCENE_SETTINGS",
    "SPLITS",
    "CheckpointName",
    "CountBuffer",
    "CountKind",
    "DamagedFile",
    "Divergence",
    "FoundRun",
    "RoundBuffer",
    "RowBuffer",
    "RowKind",
    "Run",
    "RunWriter",
    "SavedCheckpoint",
    "WriteLock",
    "checkpoint_tables",
    "data_seed_of",
    "divergence_of",
    "drop_older_checkpoint",
    "export_model",
    "file_digest",
    "find_checkpoint",
    "find_runs",
    "finished",
    "finished_folder",
    "folders_of_runs",
    "load_checkpoint",
    "partial_folder",
    "read_json_object",
    "read_manifest",
    "read_plain_tensors",
    "read_run",
    "read_runs",
    "remove_checkpoints",
    "replacing",
    "run_name",
    "save_checkpoint",
    "scene_of",
    "scene_settings",
    "spec_hash",
    "write_atomically",
    "write_table",
]

_NEEDS_TORCH = {
    **dict.fromkeys(("DamagedFile", "export_model", "read_plain_tensors"), "idiolect.records.tensor_files"),
    **dict.fromkeys(
        (
            "CheckpointName",
            "SavedCheckpoint",
            "checkpoint_tables",
            "drop_older_checkpoint",
            "find_checkpoint",
            "load_checkpoint",
            "remove_checkpoints",
            "save_checkpoint",
        ),
        "idiolect.records.checkpoints",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_NEEDS_TORCH[name]), name)
