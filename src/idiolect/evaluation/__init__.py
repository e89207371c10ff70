"""Metrics as functions, and the protocol that turns logits into scores."""

from idiolect.evaluation.metrics import METRICS, Metric, accuracy, cross_entropy
from idiolect.evaluation.protocol import Scores, choose, score

__all__ = ["METRICS", "Metric", "Scores", "accuracy", "choose", "cross_entropy", "score"]
