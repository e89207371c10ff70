"""FedDyn: dynamic regularisation."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import dynamic_regulariser

__all__ = ["feddyn"]


def feddyn(alpha: float = 0.01) -> Method:
    """Local objectives carry a dual variable, so that their optima agree with the shared one.

    Acar et al., ICLR 2021, https://arxiv.org/abs/2111.04263

    Args:
        alpha: > 0; the paper searches 0.1, 0.01 and 0.001.
    """
    return chain(dynamic_regulariser(alpha), name="feddyn")
