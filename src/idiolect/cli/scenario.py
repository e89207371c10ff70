"""An experiment of a paper as the ground of a command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from idiolect.cli.terminal import Terminal
from idiolect.experiments import Experiment
from idiolect.reproduction.scenarios import find_scenario, refuse_missing_data

__all__ = ["of_scenario"]


def of_scenario(
    name: str, preset: str, settings: dict[str, Any], data_dir: Path | None, terminal: Terminal
) -> tuple[Callable[[str], Experiment], list[str]]:
    """What gives a method its experiment, and the notes of its runs; the warning is printed."""
    found = find_scenario(name)
    found.settings(preset)
    if "dataset" not in settings:
        refuse_missing_data(found, data_dir)
    warning = found.warning_of(preset)
    if warning:
        terminal.say(f"warning: {warning}")
    notes = [f"scenario {found.name}, preset {preset}", *([f"warning: {warning}"] if warning else [])]
    return lambda method: found.experiment(method, preset), notes
