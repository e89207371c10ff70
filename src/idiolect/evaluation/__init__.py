"""Metrics as functions of predictions, and the protocol that turns logits into scores."""

from idiolect.evaluation.calibration import expected_calibration_error, in_batches, maximum_calibration_error
from idiolect.evaluation.head_diagnostics import Proxies, accumulated_gradient_norms, proxy_diagnostics
from idiolect.evaluation.metrics import (
    METRICS,
    Metric,
    accuracy,
    cross_entropy,
    macro_f1,
    per_batch_metrics,
    top_k,
)
from idiolect.evaluation.predictions import Predictions, collect_predictions
from idiolect.evaluation.predictor_scores import Scores, choose, score

__all__ = [
    "METRICS",
    "Metric",
    "Predictions",
    "Proxies",
    "Scores",
    "accumulated_gradient_norms",
    "accuracy",
    "choose",
    "collect_predictions",
    "cross_entropy",
    "expected_calibration_error",
    "in_batches",
    "macro_f1",
    "maximum_calibration_error",
    "per_batch_metrics",
    "proxy_diagnostics",
    "score",
    "top_k",
]
