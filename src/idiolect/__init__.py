"""Idiolect: personalised federated learning, where many clients train one shared model and each keeps its own.

>>> import idiolect
>>> idiolect.method("fedper").headline
'composed'

Names are loaded when they are first asked for, so that reading records and making reports needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from idiolect.errors import UserError
from idiolect.version import __version__

if TYPE_CHECKING:
    from idiolect.core import chain
    from idiolect.evaluation import register_metric
    from idiolect.experiments import Execution, Experiment
    from idiolect.experiments.compare import Comparison, compare
    from idiolect.experiments.finished.client_dataset import client_dataset
    from idiolect.experiments.finished.exported_models import load_model
    from idiolect.experiments.finished.finished_run import FinishedRun
    from idiolect.experiments.finished.finished_run import open_run as open
    from idiolect.experiments.finished.joining import JoinedClients, join
    from idiolect.experiments.own_data import register_dataset
    from idiolect.experiments.recommend import Recommendation, recommend
    from idiolect.experiments.run import run
    from idiolect.experiments.sweep.sweep import sweep
    from idiolect.methods import method, register, register_part
    from idiolect.models import from_module, register_model
    from idiolect.own_code import load_code
    from idiolect.partition import register_partition
    from idiolect.reports.run_difference import Difference, diff
    from idiolect.reproduction import scenario
    from idiolect.reproduction.reproduce import reproduce
    from idiolect.statistics.database import connect
    from idiolect.statistics.tidy_frame import load

__all__ = [
    "Comparison",
    "Difference",
    "Execution",
    "Experiment",
    "FinishedRun",
    "JoinedClients",
    "Recommendation",
    "UserError",
    "__version__",
    "chain",
    "client_dataset",
    "compare",
    "connect",
    "diff",
    "from_module",
    "join",
    "load",
    "load_code",
    "load_model",
    "method",
    "open",
    "recommend",
    "register",
    "register_dataset",
    "register_metric",
    "register_model",
    "register_part",
    "register_partition",
    "reproduce",
    "run",
    "scenario",
    "sweep",
]

_HOMES = {
    "chain": "idiolect.core",
    "register_metric": "idiolect.evaluation",
    "connect": "idiolect.statistics.database",
    **dict.fromkeys(("Difference", "diff"), "idiolect.reports.run_difference"),
    "load": "idiolect.statistics.tidy_frame",
    "load_code": "idiolect.own_code",
    "register_partition": "idiolect.partition",
    **dict.fromkeys(("method", "register", "register_part"), "idiolect.methods"),
    **dict.fromkeys(("from_module", "register_model"), "idiolect.models"),
    **dict.fromkeys(
        (
            "Comparison",
            "Execution",
            "Experiment",
            "FinishedRun",
            "JoinedClients",
            "compare",
            "join",
            "load_model",
            "register_dataset",
            "run",
            "sweep",
        ),
        "idiolect.experiments",
    ),
    "client_dataset": "idiolect.experiments.finished.client_dataset",
    **dict.fromkeys(("Recommendation", "recommend"), "idiolect.experiments.recommend"),
    **dict.fromkeys(("reproduce", "scenario"), "idiolect.reproduction"),
    "open": "idiolect.experiments",
}
_NAMES_AT_HOME = {"open": "open_run"}  # a module of the library keeps Python's own ``open``


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), _NAMES_AT_HOME.get(name, name))
