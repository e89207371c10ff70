"""The engine ``pool``: worker processes on this machine, one for each core, with data in shared memory."""

from idiolect.engines.pool.engine import PoolEngine

__all__ = ["PoolEngine"]
