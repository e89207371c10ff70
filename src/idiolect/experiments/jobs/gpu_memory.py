"""How much of a GPU's memory runs side by side take, so that one more starts only where it fits.

A run that has ended tells its peak.  Runs of the same method, network and data need as much; those of the same network
and data half as much again, because methods keep different private state; of others nothing is known, and a floor is
taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from idiolect.experiments.spec import Experiment

__all__ = ["GPU_FLOOR", "GpuMemory", "peak_of"]

GPU_FLOOR = 2 << 30  # bytes that a run takes of which nothing is known
PROCESS = 1 << 30  # bytes that a process takes beside its tensors: context, libraries, compiled graphs
MARGIN = 1.1  # between what tensors took at most and what the allocator holds
ANOTHER_METHOD = 1.5


class GpuMemory:
    """What runs need, as far as it is known; the peaks of finished runs are added as they come."""

    def __init__(self) -> None:
        self._peaks: dict[Experiment, int] = {}

    def measured(self, experiment: Experiment, peak: int) -> None:
        """Adds the bytes that the tensors of a finished run took at most."""
        if peak > 0:
            kind = _kind(experiment)
            self._peaks[kind] = max(peak, self._peaks.get(kind, 0))

    def need(self, experiment: Experiment) -> int:
        """Returns the bytes that a run needs."""
        kind = _kind(experiment)
        if kind in self._peaks:
            return int(MARGIN * self._peaks[kind]) + PROCESS
        alike = [peak for known, peak in self._peaks.items() if _scene(known) == _scene(kind)]
        return int(MARGIN * ANOTHER_METHOD * max(alike)) + PROCESS if alike else GPU_FLOOR

    def free_before(self, experiment: Experiment, starting: Iterable[Experiment]) -> int:
        """Returns the bytes that must be free before a run starts beside others.

        Args:
            starting: runs without a finished round, which may have taken nothing yet of what they need.
        """
        return sum(map(self.need, (experiment, *starting)))


def _kind(experiment: Experiment) -> Experiment:
    """Returns what experiments have in common that take the same memory."""
    return replace(experiment, seed=0, data_seed=None, rounds=1)


def _scene(kind: Experiment) -> tuple[object, ...]:
    return (kind.model, kind.dataset, kind.precision, kind.clients, kind.participation_rate, kind.batch_size)


def peak_of(manifest: Mapping[str, Any]) -> int:
    """Returns the bytes of a GPU that a finished run's tensors took at most; 0 where it is not known."""
    return int(manifest.get("resources", {}).get("peak_gpu_bytes") or 0)
