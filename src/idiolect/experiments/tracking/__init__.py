"""Logging a run to TensorBoard, MLflow or Weights & Biases while it goes on; results come from its record alone."""

from idiolect.experiments.tracking.log import TRACKERS, Log, Tracker, open_log

__all__ = ["TRACKERS", "Log", "Tracker", "open_log"]
