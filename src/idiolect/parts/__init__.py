"""Parts: one idea per file, each a named tuple of pure functions."""

from idiolect.parts.average import average
from idiolect.parts.fine_tune import fine_tune
from idiolect.parts.inherited_model import inherited_model
from idiolect.parts.inherited_teacher import inherited_teacher
from idiolect.parts.mixed_subspace import mixed_subspace
from idiolect.parts.optimal_teacher import optimal_teacher
from idiolect.parts.private_layers import private_layers
from idiolect.parts.proximal import proximal
from idiolect.parts.restricted_softmax import restricted_softmax

__all__ = [
    "average",
    "fine_tune",
    "inherited_model",
    "inherited_teacher",
    "mixed_subspace",
    "optimal_teacher",
    "private_layers",
    "proximal",
    "restricted_softmax",
]
