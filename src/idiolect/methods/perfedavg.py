"""Per-FedAvg: personalised federated learning by model-agnostic meta-learning."""

from __future__ import annotations

from idiolect.core import Method, chain
from idiolect.parts import average, meta_gradient

__all__ = ["perfedavg_fo", "perfedavg_hf"]


def perfedavg_fo(
    inner_rate: float | None = None, outer_rate: float | None = None, adapt_steps: int = 1
) -> Method:
    """FedAvg of a model that is good after one step of adaptation; first-order meta-gradient.

    Fallah, Mokhtari, Ozdaglar, NeurIPS 2020, https://arxiv.org/abs/2002.07948

    Args:
        inner_rate: a >= 0 of the adaptation; None takes the scene's learning rate.
        outer_rate: b >= 0 of the shared model; None takes the scene's learning rate times 1 / sqrt(1 - momentum), for
            the momentum that its plain steps lack.
        adapt_steps: gradient steps on training data that make the personal model.
    """
    part = meta_gradient("first_order", inner_rate, outer_rate, adapt_steps=adapt_steps)
    return chain(average(), part, name="perfedavg_fo")


def perfedavg_hf(
    inner_rate: float | None = None,
    outer_rate: float | None = None,
    difference: float = 1e-3,
    adapt_steps: int = 1,
) -> Method:
    """Per-FedAvg with a finite-difference Hessian-vector product.

    Fallah, Mokhtari, Ozdaglar, NeurIPS 2020, https://arxiv.org/abs/2002.07948

    Args:
        inner_rate: a >= 0 of the adaptation; None takes the scene's learning rate.
        outer_rate: b >= 0 of the shared model; None takes the scene's learning rate times 1 / sqrt(1 - momentum), for
            the momentum that its plain steps lack.
        difference: d of the finite difference.
        adapt_steps: gradient steps on training data that make the personal model.
    """
    part = meta_gradient("hessian_free", inner_rate, outer_rate, difference, adapt_steps)
    return chain(average(), part, name="perfedavg_hf")


fo_presets = {"paper": {"inner_rate": 0.01, "outer_rate": 0.001, "adapt_steps": 1}}
hf_presets = {"paper": {**fo_presets["paper"], "difference": 1e-3}}
