"""ray: the cohort sharded over the workers of a Ray cluster; private state stays with them between rounds."""

from idiolect.engines.cluster.engine import Ray
from idiolect.engines.cluster.residence import Residence

__all__ = ["Ray", "Residence"]
