"""A scenario: an experiment of a paper, as layers of settings that each say where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from idiolect.errors import UserError
from idiolect.experiments.spec import Experiment
from idiolect.methods.catalogue import METHODS, identifier
from idiolect.methods.method_text import beyond_defaults
from idiolect.option_parsing import parse_call, split_outside_brackets, write_call

__all__ = ["ORIGINS", "SETTINGS", "Scenario", "SettingLayer", "runs_authors_code"]

ORIGINS = {
    "paper": "the paper",
    "inferred": "chosen here",
    "official": "the authors' code",
    "clipped": "the authors' clipping alone",
    "reproduction": "found by search",
}
# The layers of each preset, on top of what the paper states and what was chosen here; a later one wins.
PRESETS = {
    "paper": (),
    "official": ("official",),
    "clipped": ("clipped",),
    "reproduction": ("official", "reproduction"),
}
SETTINGS = frozenset(field.name for field in fields(Experiment))


class SettingLayer(NamedTuple):
    """The value of a setting, the layer that it comes from (a key of ``ORIGINS``), and the reason for it."""

    value: Any
    origin: str
    reason: str = ""


@dataclass(frozen=True)
class Scenario:
    """An experiment of a paper.

    Args:
        line: what it is, in one line.
        expected_clients: number of clients in the paper; where the setting ``clients`` is 0 the data decide.
        differs: differences from the paper that no setting can remove.
        warning: what is known to go wrong with the preset ``paper``.
        cannot: why it cannot be run at all; empty where it can.
        layers: settings by origin, a key of ``ORIGINS``.
        reasons: reasons for settings, by the setting's name.
        options: options of methods, by the method's name, as the paper or its authors set them here.
        defaults: every other option of the paper's methods, so that a new default of a method changes no scenario;
            the text of a method names those that differ from the method's own defaults.
        official_options: options on top of those, with the preset ``official`` and those that build on it.
        reproduction_options: options on top of those, with the preset ``reproduction``.
        method_settings: settings that hold for one method alone, by its name.
    """

    name: str
    paper: str
    line: str
    expected_clients: int
    differs: tuple[str, ...]
    warning: str
    cannot: str
    layers: Mapping[str, Mapping[str, Any]]
    reasons: Mapping[str, str]
    options: Mapping[str, Mapping[str, Any]]
    defaults: Mapping[str, Mapping[str, Any]]
    official_options: Mapping[str, Mapping[str, Any]]
    reproduction_options: Mapping[str, Mapping[str, Any]]
    method_settings: Mapping[str, Mapping[str, Any]]

    @property
    def presets(self) -> tuple[str, ...]:
        """The presets that this scenario has."""
        return tuple(name for name in PRESETS if name in self.layers)

    @property
    def dataset(self) -> str:
        """The dataset, with its options."""
        return str(self.settings()["dataset"].value)

    def settings(self, preset: str = "paper", method: str = "") -> dict[str, SettingLayer]:
        """Returns every setting with its origin; for one method, its own settings on top."""
        if preset not in self.presets:
            raise UserError(
                f"scenario {self.name} has no preset {preset!r}; known: {', '.join(self.presets)}"
            )
        found: dict[str, SettingLayer] = {}
        for origin in ("paper", "inferred", *PRESETS[preset]):
            for key, value in self.layers.get(origin, {}).items():
                known = None if value == "none" and key == "clip_norm" else value
                found[key] = SettingLayer(known, origin, self.reasons.get(key, ""))
        name = _method_name(method)
        for key, value in self.method_settings.get(name, {}).items():
            found[key] = SettingLayer(value, "paper", f"for {name} alone")
        return found

    def method_text(self, method: str, preset: str = "paper") -> str:
        """Returns the method with the options that it has in this scenario; options in the text win.

        The preset ``official``, and those that build on it, bring the method's own preset of that name along.
        """
        first, *others = split_outside_brackets(method, "+")
        name = _method_name(first)
        if name not in METHODS:
            return method
        _, given = parse_call(name + "(" + first.partition("(")[2] if "(" in first else name)
        layers = PRESETS[preset]
        authors = METHODS[name].presets.get("official", {}) if "official" in layers else {}
        left_open = beyond_defaults(name, self.defaults.get(name, {}))
        known: dict[str, Any] = {"preset": "official"} if authors else {}
        known |= {key: value for key, value in left_open.items() if key not in authors}
        known |= self.options.get(name, {})
        if "official" in layers:
            known |= self.official_options.get(name, {})
        if "reproduction" in layers:
            known |= self.reproduction_options.get(name, {})
        return " + ".join([write_call(name, known | given), *others])

    def experiment(self, method: str = "fedavg", preset: str = "paper") -> Experiment:
        """Returns the experiment of one method."""
        if self.cannot:
            raise UserError(f"scenario {self.name} cannot be run: {self.cannot}")
        settings = {key: layer.value for key, layer in self.settings(preset, method).items()}
        return Experiment(method=self.method_text(method, preset), **settings)

    def warning_of(self, preset: str) -> str:
        """Returns the warning that holds for a preset."""
        return self.warning if preset == "paper" else ""


def runs_authors_code(preset: str) -> bool:
    """Whether a preset runs methods as the paper's authors wrote them, where their code is public."""
    return "official" in PRESETS[preset]


def _method_name(method: str) -> str:
    return identifier(method.partition("+")[0].partition("(")[0])
