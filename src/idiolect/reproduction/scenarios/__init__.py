"""Every experiment of the five papers by name, with what is known of its settings and where from."""

from idiolect.reproduction.scenarios.catalogue import find, refuse_missing, scenario, scenarios
from idiolect.reproduction.scenarios.scenario import ORIGINS, Given, Scenario
from idiolect.reproduction.scenarios.uses import Uses, uses

__all__ = [
    "ORIGINS",
    "Given",
    "Scenario",
    "Uses",
    "find",
    "refuse_missing",
    "scenario",
    "scenarios",
    "uses",
]
