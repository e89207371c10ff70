"""The core: parts, stages, methods, and the pure functions of a round.  No I/O, no devices, no networks."""

from idiolect.core.client import Program
from idiolect.core.context import UPLOAD, Context, State
from idiolect.core.method import Composition, Method, Placed, chain, compose
from idiolect.core.optimiser import Optimiser, adam, sgd
from idiolect.core.part import (
    Batch,
    Choice,
    Clock,
    Facts,
    Forward,
    GradientFunction,
    Initial,
    Loss,
    Message,
    Model,
    Out,
    Part,
    Predictor,
    Results,
    Scene,
    Structure,
    Task,
    View,
)
from idiolect.core.seeds import derive
from idiolect.core.server import broadcast, init_private, init_server, server_round, weighted_mean
from idiolect.core.stage import Measure, Plan, Result, Stage, Trees, as_received, steps_of
from idiolect.core.trees import Flat, Tree

__all__ = [
    "UPLOAD",
    "Batch",
    "Choice",
    "Clock",
    "Composition",
    "Context",
    "Facts",
    "Flat",
    "Forward",
    "GradientFunction",
    "Initial",
    "Loss",
    "Measure",
    "Message",
    "Method",
    "Model",
    "Optimiser",
    "Out",
    "Part",
    "Placed",
    "Plan",
    "Predictor",
    "Program",
    "Result",
    "Results",
    "Scene",
    "Stage",
    "State",
    "Structure",
    "Task",
    "Tree",
    "Trees",
    "View",
    "adam",
    "as_received",
    "broadcast",
    "chain",
    "compose",
    "derive",
    "init_private",
    "init_server",
    "server_round",
    "sgd",
    "steps_of",
    "weighted_mean",
]
