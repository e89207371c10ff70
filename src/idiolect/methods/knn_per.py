"""kNN-Per: personalised federated learning through local memorisation."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, nearest_neighbours

__all__ = ["knn_per"]


def knn_per(count: int = 10, share: float | None = None, scale: float = 1.0, cap: int = 500) -> Method:
    """FedAvg's final model, which every client mixes with the labels of the most similar of its own training rows.

    Marfoq, Neglia, Kameni, Vidal, ICML 2022, https://arxiv.org/abs/2111.09360.  The code of the authors takes squared
    distances divided by the number of features, and scans lambda on the test rows; here distances are the paper's and
    lambda is chosen on validation data.  A version that mixes the neighbours' probabilities with the model's logits
    gives lambda another meaning.

    Args:
        count: k >= 1, neighbours.
        share: lambda_m in [0, 1]; None lets each client choose its own on its validation data.
        scale: s > 0 of the distances; 1 in the paper.
        cap: >= 1, the most rows that a client remembers.
    """
    return chain(average(), nearest_neighbours(count, share, scale, cap), name="knn_per")


presets = {"paper": {"count": 10, "scale": 1.0}}
