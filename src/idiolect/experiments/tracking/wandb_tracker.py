"""Weights & Biases tracker: logs to the project ``idiolect``, below ``<out>/wandb``.

Runs are offline unless ``WANDB_MODE`` says otherwise or the user is logged in, and ``wandb sync`` uploads them later.
A note beside them, ``<out>/wandb/<run>.json``, holds a run's id, status and last round: a resumed run is the same run
there, and no round is logged twice.  Reports about errors of the package are switched off.
"""

from __future__ import annotations

import json
import netrc
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

os.environ.setdefault("WANDB_ERROR_REPORTING", "false")

import wandb

from idiolect.records import read_json_object, write_atomically

__all__ = ["WeightsAndBiases", "logged_in", "open_tracker"]

PROJECT = "idiolect"
FOLDER = "wandb"
HOST = "https://api.wandb.ai"
SEEN = "round/train_loss"  # every round has it
EXIT_CODE = {"finished": 0, "failed": 1, "stopped": 130}


class WeightsAndBiases:
    """Logs a run as one run of Weights & Biases.

    Args:
        out: the folder in which the package makes its folder ``wandb``.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._run: Any = None
        self._name = ""
        self._note: dict[str, Any] = {}

    def begin(self, name: str, manifest: Mapping[str, Any], done: int) -> None:
        """Continues the unfinished run of that name if there is one; rounds that it knows are not logged twice."""
        config = {**manifest["spec"], "label": manifest["label"], "spec_hash": manifest["spec_hash"]}
        self._open(name, config, "run")

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        if round <= self._note["round"] and SEEN in numbers:
            return
        self._run.log(dict(numbers), step=round)
        self._write_note(round=round)

    def keep(self, files: Mapping[str, Path]) -> None:
        """Shows pictures with the run, and keeps the other files as an artifact of it."""
        pictures = {name: path for name, path in files.items() if path.suffix == ".png"}
        shown = {name.removesuffix(".png"): wandb.Image(str(path)) for name, path in pictures.items()}
        self._run.log(shown, step=max(self._note["round"], self._run.step))
        kept = wandb.Artifact(f"{PROJECT}-{self._run.id}", type="record")
        for name, path in files.items():
            if name not in pictures:  # a record stays where it is; what lies elsewhere is copied
                kept.add_file(str(path), name=name, policy="mutable" if "/" in name else "immutable")
        self._run.log_artifact(kept)

    def end(self, status: str) -> None:
        self._run.summary["status"] = status
        self._run.finish(exit_code=EXIT_CODE[status])
        self._write_note(status=status)
        self._run = None

    def keep_comparison(self, name: str, files: Mapping[str, Path]) -> None:
        self._open(name, {}, "comparison")
        self.keep(files)
        self.end("finished")

    @property
    def look(self) -> str:
        if _mode() == "offline":
            return f"Weights & Biases: wandb sync {self._out / FOLDER}/offline-run-* uploads the runs"
        return f"Weights & Biases: the project {PROJECT}"

    def _open(self, name: str, config: Mapping[str, Any], kind: str) -> None:
        (self._out / FOLDER).mkdir(parents=True, exist_ok=True)
        self._name = name
        self._note = self._read_note()
        resume = None if _mode() == "offline" else "allow"  # offline, the id alone makes it the same run
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=self._note["id"],
            name=name,
            dir=str(self._out),
            config=dict(config),
            job_type=kind,
            mode=_mode(),
            resume=resume,
            settings=wandb.Settings(console="off", silent=True),
        )
        self._write_note(status="running")

    def _read_note(self) -> dict[str, Any]:
        """Returns what is known of an unfinished run of this name, or a new id."""
        try:
            found = read_json_object(self._note_file)
        except (OSError, ValueError):
            found = {"status": "finished"}
        if found.get("status", "finished") != "finished":
            return found
        return {"id": secrets.token_hex(4), "round": 0, "status": "running"}

    def _write_note(self, **news: Any) -> None:
        self._note |= news
        write_atomically(self._note_file, json.dumps(self._note))

    @property
    def _note_file(self) -> Path:
        return self._out / FOLDER / f"{self._name}.json"


def logged_in() -> bool:
    """Returns whether the package could upload: a key in the environment, or one that ``wandb login`` has left."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", HOST)).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _mode() -> str:
    return os.environ.get("WANDB_MODE") or ("online" if logged_in() else "offline")


def open_tracker(out: Path) -> WeightsAndBiases:
    """Opens a tracker that writes below ``out``; its files are made when a run begins."""
    return WeightsAndBiases(out)
