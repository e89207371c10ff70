"""ray: the cohort sharded over the workers of a RayEngine cluster; private state stays with them between rounds."""

from idiolect.engines.ray.engine import RayEngine
from idiolect.engines.ray.residence import Residence

__all__ = ["RayEngine", "Residence"]
