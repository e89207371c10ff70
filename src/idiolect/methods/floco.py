"""Floco and Floco+: federated learning over connected modes."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import solution_simplex

__all__ = ["floco"]


def floco(
    endpoints: int = 10,
    radius: float = 0.3,
    phase_one: float = 0.5,
    personal_epochs: float = 0,
    personal_weight: float = 1.0,
) -> Method:
    """Clients share a simplex of heads, trained at random points; their updates then give each client its region.

    Grinwald, Wiesner, Nakajima, NeurIPS 2024, https://arxiv.org/abs/2403.03333.  With ``personal_epochs`` above 0
    this is Floco+.  In released versions the points that are drawn near a centre may leave the simplex; and one version
    of Floco+ has lambda v - theta in place of lambda (v - theta), which is the same for lambda = 1 alone.

    Args:
        endpoints: M >= 1 corners of the simplex; 1 is FedAvg.
        radius: rho >= 0 of a client's region.
        phase_one: tau / T in [0, 1], share of the rounds before clients are placed.
        personal_epochs: E_p >= 0 of a client's own simplex (Floco+); 0 is Floco.
        personal_weight: lambda >= 0 of Floco+.
    """
    part = solution_simplex(endpoints, radius, phase_one, personal_epochs, personal_weight)
    return chain(part, name="floco")


presets = {"official": {"endpoints": 10, "radius": 0.3, "phase_one": 0.5}}
