"""Ways to execute the same round; the only code that knows devices and processes."""

from idiolect.engines.choose import ENGINES, Engine, Resident, Where, choose_engine, place, start_early
from idiolect.engines.cohort.engine import Cohort
from idiolect.engines.dry_round import Forms, dry_round
from idiolect.engines.evaluation import server_logits
from idiolect.engines.group import Outcome
from idiolect.engines.loop import Loop
from idiolect.engines.pool import Pool
from idiolect.engines.serve import serve
from idiolect.engines.task import AUGMENTATIONS, initialiser, make_task, structure_of
from idiolect.engines.workload import Workload

__all__ = [
    "AUGMENTATIONS",
    "ENGINES",
    "Cohort",
    "Engine",
    "Forms",
    "Loop",
    "Outcome",
    "Pool",
    "Resident",
    "Where",
    "Workload",
    "choose_engine",
    "dry_round",
    "initialiser",
    "make_task",
    "place",
    "serve",
    "server_logits",
    "start_early",
    "structure_of",
]
