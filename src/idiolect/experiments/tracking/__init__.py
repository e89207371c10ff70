"""Logging a run elsewhere while it goes on: TensorBoard, MLflow.  The run's record stays the only source of results."""

from idiolect.experiments.tracking.log import Log, open_log
from idiolect.experiments.tracking.tracker import TRACKERS, Tracker

__all__ = ["TRACKERS", "Log", "Tracker", "open_log"]
