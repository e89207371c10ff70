"""Per-FedAvg: personalised federated learning by model-agnostic meta-learning."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, meta_gradient

__all__ = ["perfedavg_fo", "perfedavg_hf"]


def perfedavg_fo(inner_rate: float = 0.01, outer_rate: float = 0.001, adapt_steps: int = 1) -> Method:
    """FedAvg of a model that is good after one step of adaptation; first-order meta-gradient.

    Fallah, Mokhtari, Ozdaglar, NeurIPS 2020, https://arxiv.org/abs/2002.07948

    Args:
        inner_rate, outer_rate: a and b.
        adapt_steps: gradient steps on training data that make the personal model.
    """
    part = meta_gradient("first_order", inner_rate, outer_rate, adapt_steps=adapt_steps)
    return chain(average(), part, name="perfedavg_fo")


def perfedavg_hf(
    inner_rate: float = 0.01, outer_rate: float = 0.001, difference: float = 1e-3, adapt_steps: int = 1
) -> Method:
    """Per-FedAvg with a finite-difference Hessian-vector product.

    Fallah, Mokhtari, Ozdaglar, NeurIPS 2020, https://arxiv.org/abs/2002.07948

    Args:
        inner_rate, outer_rate: a and b.
        difference: d of the finite difference.
        adapt_steps: gradient steps on training data that make the personal model.
    """
    part = meta_gradient("hessian_free", inner_rate, outer_rate, difference, adapt_steps)
    return chain(average(), part, name="perfedavg_hf")
