"""FD: federated distillation."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, label_distillation, private_layers

__all__ = ["feddistill"]


def feddistill(weight: float = 1.0) -> Method:
    """Every client keeps its whole model; only the mean prediction for each label is shared.

    Called FD in the paper, and ``fd`` is another name of it here; libraries call it FedDistill.  The augmentation of
    the same paper, which needs data on the server, is not part of it.

    A client's teacher is the mean of the others; released versions often average the client's own predictions in, and
    compare logits by their squared distance where the paper has the cross-entropy of probabilities.

    Jeong, Oh, Kim, Park, Bennis, Kim 2018, https://arxiv.org/abs/1811.11479

    Args:
        weight: gamma >= 0 of the cross-entropy with the others' mean prediction.
    """
    whole = private_layers(count=None, head_init="shared")
    return chain(average(), whole, label_distillation(weight), name="feddistill")
