"""The best settings that a sweep has found, as experiments that can be compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from idiolect import data
from idiolect.errors import UserError, unknown_name
from idiolect.experiments.spec import Experiment, with_settings
from idiolect.option_parsing import parse_call
from idiolect.records import read_json_object

__all__ = ["SweptMethod", "SweptSettings", "read_sweep", "refuse_unknown_data"]

FILE = "sweep.json"


class SweptMethod(NamedTuple):
    """A method with the setting that was best on validation data.

    Args:
        note: says where the setting comes from, for the record of its runs.
    """

    name: str
    experiment: Experiment
    note: str


class SweptSettings(NamedTuple):
    """The best setting of each method of a sweep, and the seeds that it was tuned on."""

    folder: Path
    methods: list[SweptMethod]
    seeds: list[int]

    def chosen(self, names: Sequence[str]) -> list[SweptMethod]:
        """Returns the methods of these names, or all."""
        by_name = {one.name: one for one in self.methods}
        for name in names:
            if name not in by_name:
                raise unknown_name(f"method of {self.folder}", name, by_name)
        return [by_name[name] for name in names] if names else self.methods

    @property
    def next_seed(self) -> int:
        """The first seed that has tuned nothing."""
        return max(self.seeds) + 1

    def note_of_seed(self, seed: int) -> str:
        """Says of a seed that tuned the settings that it did; empty for another."""
        return f"seed {seed} is among those that the setting was tuned on" if seed in self.seeds else ""


def read_sweep(folder: str | Path) -> SweptSettings:
    """Reads the folder of a finished sweep, or a folder that holds one.

    Raises:
        UserError: there is no finished sweep, or it has no best setting.
    """
    path = _file_in(Path(folder))
    again = "run the sweep again, which reads its finished runs and writes the file anew"
    try:
        found = read_json_object(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged: it is no JSON document ({error}); {again}") from error
    try:
        methods = [_swept(path.parent.name, found, one) for one in found["best"]]
        seeds = [int(seed) for seed in found["seeds"]]
        if not seeds:
            raise ValueError("no seed")
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} is damaged: it does not hold the best settings and seeds of a sweep; {again}"
        ) from error
    if not methods:
        raise UserError(f"no trial of {path.parent} was finished, so that no setting is the best")
    return SweptSettings(path.parent, methods, seeds)


def _file_in(folder: Path) -> Path:
    if (folder / FILE).is_file():
        return folder / FILE
    inside = sorted(folder.glob(f"sweep-*/{FILE}"))
    if len(inside) == 1:
        return inside[0]
    if inside:
        listed = ", ".join(str(path.parent) for path in inside)
        raise UserError(f"{folder} holds several sweeps; give one of {listed}")
    raise UserError(f"{folder} holds no finished sweep; give the folder that idiolect sweep has named")


def _swept(folder: str, found: dict[str, Any], best: dict[str, Any]) -> SweptMethod:
    known = {field.name for field in dataclasses.fields(Experiment)}
    spec: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in best["spec"].items()
        if key in known
    }
    seeds = ", ".join(map(str, found["seeds"]))
    word = "seed" if len(found["seeds"]) == 1 else "seeds"
    trial = (
        f"trial {best['trial'] + 1} of {best['trials']} ({found['search']} search, {best['rounds']} rounds)"
    )
    note = f"setting from {folder}, {trial}, best on validation data with {word} {seeds}"
    return SweptMethod(best["name"], with_settings(Experiment(), {**spec, "score_valid": False}), note)


def refuse_unknown_data(methods: Sequence[SweptMethod]) -> None:
    """Refuses settings that were found on data of the user's own, unless these are given again."""
    for one in methods:
        name = parse_call(one.experiment.dataset)[0]
        if not data.is_registered(one.experiment.dataset) and name not in data.names():
            raise UserError(f"the sweep ran on data of your own, {name}; give them again: --data, or data=")
