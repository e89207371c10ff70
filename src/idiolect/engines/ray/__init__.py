"""The engine ``ray``: splits the cohort over the workers of a Ray cluster, which keep private rows between rounds."""

from idiolect.engines.ray.engine import RayEngine
from idiolect.engines.ray.residence import ResidentRows
from idiolect.engines.ray.workers import room_of_cluster

__all__ = ["RayEngine", "ResidentRows", "room_of_cluster"]
