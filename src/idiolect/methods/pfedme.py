"""pFedMe: personalised federated learning with Moreau envelopes."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, moreau_envelope

__all__ = ["pfedme"]


def pfedme(
    weight: float = 15.0,
    inner_steps: int = 5,
    inner_rate: float | None = None,
    outer_rate: float = 0.05,
    beta: float = 1.0,
    steps: int | None = None,
) -> Method:
    """Personal models near the shared one, solved for batch by batch; the shared one follows them.

    Dinh, Tran, Nguyen, NeurIPS 2020, https://arxiv.org/abs/2006.08848

    Args:
        weight: lambda >= 0; outer_rate * weight should not exceed 1.
        inner_steps: K >= 1 of the inner problem.
        inner_rate: eta_p >= 0 of the inner problem; None takes the scene's learning rate, at most 1 / weight.  The
            paper's 0.09 suits small convex problems and diverges on convolutional networks.
        outer_rate: eta of the shared model.
        beta: of the server's step.
        steps: R batches in a round; None makes the scene's local epochs (the paper: 20).
    """
    part = moreau_envelope(weight, inner_steps, inner_rate, outer_rate, steps)
    return chain(average(beta), part, name="pfedme")


presets = {
    "paper": {
        "weight": 15.0,
        "inner_steps": 5,
        "inner_rate": 0.09,
        "outer_rate": 0.005,
        "beta": 1.0,
        "steps": 20,
    }
}
