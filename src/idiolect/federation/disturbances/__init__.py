"""What can go wrong in a run: one kind of trouble a file, read by name from the setting ``under``."""

from idiolect.federation.disturbances.catalogue import (
    DISTURBANCES,
    Troubles,
    canonical_under,
    describe_disturbances,
)
from idiolect.federation.disturbances.disturbance import Disturbance, DisturbedData

__all__ = [
    "DISTURBANCES",
    "Disturbance",
    "DisturbedData",
    "Troubles",
    "canonical_under",
    "describe_disturbances",
]
