"""The frozen experiment spec, single runs and comparisons."""

from idiolect.experiments.progress import Silent, Watcher
from idiolect.experiments.run import Comparison, compare, run
from idiolect.experiments.setting import Setting, prepare
from idiolect.experiments.simulation import Simulation
from idiolect.experiments.spec import Experiment, with_settings

__all__ = [
    "Comparison",
    "Experiment",
    "Setting",
    "Silent",
    "Simulation",
    "Watcher",
    "compare",
    "prepare",
    "run",
    "with_settings",
]
