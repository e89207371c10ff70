"""APPLE: adaptive personalised cross-silo federated learning."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, directed_relationships, private_layers

__all__ = ["apple"]


def apple(
    models: int | None = 5,
    rate: float = 1e-3,
    weight: float = 0.1,
    share: float = 0.2,
    schedule: str = "cosine",
    core_lr_scale: float | None = None,
) -> Method:
    """Every client's model is a mixture of all clients' core models, whose shares it learns beside its own core model.

    Luo, Wu, IJCAI 2022, https://arxiv.org/abs/2110.08394

    What travels is the core model; PFLlib's clients upload their personal model in its place, and take a mean where
    the derivative by a relationship is an inner product.  The authors' code has the proximal term without the half,
    twice as strong for the same mu; the preset ``official`` says so by its weight.

    Args:
        models: M >= 1, core models of others that a client receives in a round; None is all of them.
        rate: eta_2 >= 0, of the relationships.
        weight: mu >= 0, how strongly relationships are held near 1 / N at first.
        share: L in [0, 1], of the rounds of the run, in which that fades.
        schedule: ``cosine`` or ``exponential``.
        core_lr_scale: > 0, eta_1 in units of the scene's learning rate; None is 1 / p_ii, at most N.
    """
    relations = directed_relationships(models, rate, weight, share, schedule, core_lr_scale)
    return chain(average(), private_layers(count=None, head_init="shared"), relations, name="apple")


presets = {
    "official": {
        "models": None,
        "rate": 1e-3,
        "weight": 0.2,
        "share": 0.1,
        "schedule": "exponential",
        "core_lr_scale": 1.0,
    }
}
