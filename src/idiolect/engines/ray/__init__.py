"""The engine ``ray``: splits the cohort over the workers of a Ray cluster, which keep private rows between rounds."""

from idiolect.engines.ray.engine import RayEngine
from idiolect.engines.ray.residence import ResidentRows

__all__ = ["RayEngine", "ResidentRows"]
