"""Engines: ways to execute the same round; the only code that knows devices and processes."""

from idiolect.engines.choose import ENGINES, EngineChoice, choose_engine, place, start_early
from idiolect.engines.cohort.engine import CohortEngine
from idiolect.engines.contract import Engine, Logits, Outcome, PrivateRows
from idiolect.engines.device_data import Workload
from idiolect.engines.dry_round import Forms, ReportedNames, dry_round
from idiolect.engines.evaluation import server_logits
from idiolect.engines.loop import LoopEngine
from idiolect.engines.network_task import AUGMENTATIONS, initial_net, initialiser, make_task, structure_of
from idiolect.engines.pool import PoolEngine
from idiolect.engines.stages import serve

__all__ = [
    "AUGMENTATIONS",
    "ENGINES",
    "CohortEngine",
    "Engine",
    "EngineChoice",
    "Forms",
    "Logits",
    "LoopEngine",
    "Outcome",
    "PoolEngine",
    "PrivateRows",
    "ReportedNames",
    "Workload",
    "choose_engine",
    "dry_round",
    "initial_net",
    "initialiser",
    "make_task",
    "place",
    "serve",
    "server_logits",
    "start_early",
    "structure_of",
]
