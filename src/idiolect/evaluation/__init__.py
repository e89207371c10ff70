"""Metrics as functions, and the protocol that turns logits into scores."""

from idiolect.evaluation.calibration import expected_calibration_error, in_batches, maximum_calibration_error
from idiolect.evaluation.judged import Judged, judge
from idiolect.evaluation.metrics import (
    METRICS,
    Metric,
    accuracy,
    cross_entropy,
    macro_f1,
    per_batch_metrics,
    top_k,
)
from idiolect.evaluation.protocol import Scores, choose, score
from idiolect.evaluation.proxies import Proxies, accumulated_gradient_norms, proxy_diagnostics

__all__ = [
    "METRICS",
    "Judged",
    "Metric",
    "Proxies",
    "Scores",
    "accumulated_gradient_norms",
    "accuracy",
    "choose",
    "cross_entropy",
    "expected_calibration_error",
    "in_batches",
    "judge",
    "macro_f1",
    "maximum_calibration_error",
    "per_batch_metrics",
    "proxy_diagnostics",
    "score",
    "top_k",
]
