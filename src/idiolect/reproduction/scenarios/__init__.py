"""Every experiment of the five papers by name, with the origin of each of its settings."""

from idiolect.reproduction.scenarios.catalogue import (
    ScenarioUses,
    find_scenario,
    refuse_missing_data,
    scenario,
    scenario_uses,
    scenarios,
)
from idiolect.reproduction.scenarios.scenario import ORIGINS, Scenario, SettingLayer

__all__ = [
    "ORIGINS",
    "Scenario",
    "ScenarioUses",
    "SettingLayer",
    "find_scenario",
    "refuse_missing_data",
    "scenario",
    "scenario_uses",
    "scenarios",
]
