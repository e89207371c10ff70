"""FedFomo: personalised federated learning by first-order model optimisation."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, first_order_mixture, private_layers

__all__ = ["fedfomo"]


def fedfomo(models: int = 5, explore: float = 0.3) -> Method:
    """Every client keeps its whole model, and moves it towards models of others that help on its validation data.

    Zhang et al., ICLR 2021, https://arxiv.org/abs/2012.08565.
    The code of the authors divides by the l1 norm of the difference unless told otherwise; the paper and this
    part divide by the Euclidean norm.

    Args:
        models: M >= 1, models of others that a client receives in a round.
        explore: epsilon in [0, 1], the probability that a received model is picked at random.
    """
    whole = private_layers(count=None, head_init="shared")
    return chain(average(), whole, first_order_mixture(models, explore), name="fedfomo")
