"""The rows that a study records of a network's head; `client` is the number of a class, or of a test sample."""

from __future__ import annotations

import torch
from torch import Tensor

from idiolect.evaluation import proxy_diagnostics
from idiolect.records import NO_CLIENT, RowBuffer, RowKind
from idiolect.reproduction.studies.head_study import Study

__all__ = ["DISTANCES", "observe_epoch", "observe_features", "target_name"]

DISTANCES = {"observed_observed": "O-O", "observed_missing": "O-M", "missing_missing": "M-M"}
MOST_SAMPLES = 1000  # of the test set, with features in the record


def target_name(classes: int) -> str:
    """Returns the name of the predictor that is scored on the first classes alone."""
    return f"target({classes})"


def observe_epoch(
    rows: RowBuffer,
    epoch: int,
    study: Study,
    weight: Tensor,
    gradient_norms: Tensor,
    logits: Tensor,
    labels: Tensor,
) -> None:
    """Adds norms of proxies (rows of the head) and of their accumulated gradients, distances, and accuracies.

    Accuracy on a target counts the samples of its classes; all classes may be predicted.
    """
    found, classes = proxy_diagnostics(weight, range(study.observed)), range(len(weight))
    head = RowKind("none", "head", "after", "all", "proxy norm")
    rows.extend(epoch, classes, head, found.norms.tolist())
    rows.extend(epoch, classes, head._replace(metric="gradient norm"), gradient_norms.tolist())
    for field, name in DISTANCES.items():
        value = getattr(found, field)
        if value == value:
            rows.add(epoch, NO_CLIENT, head._replace(metric=f"distance {name}"), value)
    hits = (logits.argmax(1) == labels).double()
    for target in study.targets:
        score = float(hits[labels < target].mean())
        rows.add(epoch, NO_CLIENT, RowKind("test", target_name(target), "after", "all", "accuracy"), score)


def observe_features(rows: RowBuffer, study: Study, weight: Tensor, features: Tensor, labels: Tensor) -> None:
    """Adds two-dimensional features of test samples of the observed classes, and the proxies."""
    kept = torch.nonzero(labels < study.observed).flatten()[:MOST_SAMPLES]
    observed = {"label": labels[kept], **{f"feature {axis}": features[kept, axis] for axis in (0, 1)}}
    for metric, values in observed.items():
        rows.extend(
            study.epochs, range(len(kept)), RowKind("test", "features", "end", "all", metric), values.tolist()
        )
    for axis in (0, 1):
        proxies = weight[:, axis].tolist()
        rows.extend(
            study.epochs, range(len(weight)), RowKind("none", "head", "end", "all", f"proxy {axis}"), proxies
        )
