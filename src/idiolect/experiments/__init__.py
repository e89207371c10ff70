"""The frozen experiment spec, runs, comparisons, sweeps and campaigns of many runs."""

from idiolect.experiments.compare import Comparison, compare
from idiolect.experiments.execution import Execution
from idiolect.experiments.finished.exported_models import load_model
from idiolect.experiments.finished.finished_run import FinishedRun, open_run
from idiolect.experiments.finished.joining import JoinedClients, join
from idiolect.experiments.own_data import register_dataset
from idiolect.experiments.progress.watcher import Silent, Watcher
from idiolect.experiments.rounds.simulated_clients import Simulation
from idiolect.experiments.run import run
from idiolect.experiments.setting import Setting, prepare
from idiolect.experiments.spec import Experiment, with_settings
from idiolect.experiments.sweep.sweep import Sweep, sweep

__all__ = [
    "Comparison",
    "Execution",
    "Experiment",
    "FinishedRun",
    "JoinedClients",
    "Setting",
    "Silent",
    "Simulation",
    "Sweep",
    "Watcher",
    "compare",
    "join",
    "load_model",
    "open_run",
    "prepare",
    "register_dataset",
    "run",
    "sweep",
    "with_settings",
]
