"""Every experiment of the five papers by name, with what is known of its settings and where from."""

from idiolect.experiments.scenarios.availability import Availability, availability, refuse_missing
from idiolect.experiments.scenarios.catalogue import find, scenario, scenarios
from idiolect.experiments.scenarios.scenario import ORIGINS, Given, Scenario
from idiolect.experiments.scenarios.uses import Uses, uses

__all__ = [
    "ORIGINS",
    "Availability",
    "Given",
    "Scenario",
    "Uses",
    "availability",
    "find",
    "refuse_missing",
    "scenario",
    "scenarios",
    "uses",
]
