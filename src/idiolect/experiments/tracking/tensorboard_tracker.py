"""TensorBoard tracker: event files in ``<out>/tensorboard/<run>``; show them with ``tensorboard --logdir <out>``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorboard as tensorboard  # the error of a missing package then names it
from matplotlib.image import imread
from torch.utils.tensorboard import SummaryWriter

__all__ = ["TensorBoard", "open_tracker"]

FOLDER = "tensorboard"


class TensorBoard:
    """Logs a run as scalars of TensorBoard."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def begin(self, name: str, manifest: Mapping[str, Any], done: int) -> None:
        """Hides the points after ``done`` that a stopped run has left; they are logged again."""
        self._writer = SummaryWriter(str(self._folder / name), purge_step=done + 1)
        spec = json.dumps(manifest["spec"], indent=2)
        self._writer.add_text("spec", f"```json\n{spec}\n```", 0)

    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        if self._writer is None:
            return
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def end(self, status: str) -> None:
        if self._writer is not None:
            self._writer.add_text("status", status, 0)
            self._writer.close()
        self._writer = None

    def keep(self, files: Mapping[str, Path]) -> None:
        """Shows the pictures; TensorBoard has no place for other files."""
        if self._writer is None:
            return
        for name, path in files.items():
            if path.suffix == ".png":
                self._writer.add_image(name.removesuffix(".png"), imread(path), 0, dataformats="HWC")

    def keep_comparison(self, name: str, files: Mapping[str, Path]) -> None:
        self._writer = SummaryWriter(str(self._folder / name))
        self.keep(files)
        self._writer.close()
        self._writer = None

    @property
    def look(self) -> str:
        return f"TensorBoard: tensorboard --logdir {shlex.quote(str(self._folder))}"


def open_tracker(out: Path) -> TensorBoard:
    """Opens the folder below ``out``; the event file is made when a run begins."""
    return TensorBoard(out / FOLDER)
