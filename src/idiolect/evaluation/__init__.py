"""Metrics as functions of predictions, and the protocol that turns logits into scores."""

from idiolect.evaluation.calibration import expected_calibration_error, in_batches, maximum_calibration_error
from idiolect.evaluation.head_diagnostics import Proxies, accumulated_gradient_norms, proxy_diagnostics
from idiolect.evaluation.metrics import (
    METRICS,
    Metric,
    accuracy,
    chosen_metrics,
    cross_entropy,
    macro_f1,
    metrics_of,
    own_sources,
    per_batch_metrics,
    register_metric,
    top_k,
)
from idiolect.evaluation.prediction_counts import (
    Counts,
    PredictionCounts,
    count_predictions,
    joined_counts,
)
from idiolect.evaluation.predictions import Predictions, Units, collect_predictions
from idiolect.evaluation.predictor_scores import Scores, choose, mean_defined, score

__all__ = [
    "METRICS",
    "Counts",
    "Metric",
    "PredictionCounts",
    "Predictions",
    "Proxies",
    "Scores",
    "Units",
    "accumulated_gradient_norms",
    "accuracy",
    "choose",
    "chosen_metrics",
    "collect_predictions",
    "count_predictions",
    "cross_entropy",
    "expected_calibration_error",
    "in_batches",
    "joined_counts",
    "macro_f1",
    "maximum_calibration_error",
    "mean_defined",
    "metrics_of",
    "own_sources",
    "per_batch_metrics",
    "proxy_diagnostics",
    "register_metric",
    "score",
    "top_k",
]
