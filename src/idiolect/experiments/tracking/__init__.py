"""Logging a run to TensorBoard or MLflow while it goes on; the run's record stays the only source of results."""

from idiolect.experiments.tracking.log import TRACKERS, Log, Tracker, open_log

__all__ = ["TRACKERS", "Log", "Tracker", "open_log"]
