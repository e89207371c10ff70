"""Local: every client trains a model of its own; nothing is shared."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, private_layers

__all__ = ["local"]


def local() -> Method:
    """Purely local training, on the selection schedule of the other methods so that the work is comparable.

    Baseline of FedPHP (there NoFed) and FedPer.  All clients start from the same initial model.
    """
    return chain(average(), private_layers(count=None, head_init="shared"), name="local")
