"""ray: the cohort sharded over the workers of a RayEngine cluster; private state stays with them between rounds."""

from idiolect.engines.cluster.engine import RayEngine
from idiolect.engines.cluster.residence import Residence

__all__ = ["RayEngine", "Residence"]
