"""The frozen experiment spec, runs, comparisons, the papers' scenarios, reproductions and sweeps."""

from idiolect.experiments.compare import Comparison, compare
from idiolect.experiments.execution import Execution
from idiolect.experiments.progress import Silent, Watcher
from idiolect.experiments.reproduce import Reproduction, reproduce
from idiolect.experiments.run import run
from idiolect.experiments.scenarios import scenario
from idiolect.experiments.setting import Setting, prepare
from idiolect.experiments.simulation import Simulation
from idiolect.experiments.spec import Experiment, with_settings
from idiolect.experiments.sweep import Sweep, sweep

__all__ = [
    "Comparison",
    "Execution",
    "Experiment",
    "Reproduction",
    "Setting",
    "Silent",
    "Simulation",
    "Sweep",
    "Watcher",
    "compare",
    "prepare",
    "reproduce",
    "run",
    "scenario",
    "sweep",
    "with_settings",
]
