"""Server optimisers on the pseudo-gradient (FedOpt family).

D = sum_k p_k thetahat_k - theta_t
momentum  m <- beta m + D;                 theta <- theta + eta_s m                        Hsu et al. 2019
adagrad   m <- D,                          v <- v + D^2
adam      m <- b1 m + (1 - b1) D,          v <- b2 v + (1 - b2) D^2
yogi      m as adam,                       v <- v - (1 - b2) D^2 sign(v - D^2)
          theta <- theta + eta_s m / (sqrt(v) + tau),   m_0 = 0, v_0 = tau^2, no bias correction
Reddi et al., ICLR 2021, algorithm 2, https://arxiv.org/abs/2003.00295
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from idiolect.core import Clock, Flat, Flats, Initial, Part
from idiolect.core.part import keeps_options
from idiolect.core.trees import zeros_like
from idiolect.errors import refuse_outside, refuse_unknown_choice
from idiolect.parts.average import average

__all__ = ["RULES", "server_optimiser"]

Rule = Callable[[Tensor, Tensor, float], Tensor]  # (v, D, b2) -> v


def adagrad(v: Tensor, d: Tensor, beta_two: float) -> Tensor:
    return v + d**2


def adam(v: Tensor, d: Tensor, beta_two: float) -> Tensor:
    return beta_two * v + (1 - beta_two) * d**2


def yogi(v: Tensor, d: Tensor, beta_two: float) -> Tensor:
    return v - (1 - beta_two) * d**2 * torch.sign(v - d**2)


RULES: dict[str, Rule] = {"adagrad": adagrad, "adam": adam, "yogi": yogi}


@keeps_options
def server_optimiser(
    rule: str = "momentum",
    learning_rate: float = 1.0,
    beta_one: float = 0.9,
    beta_two: float = 0.99,
    tau: float = 1e-3,
    nesterov: bool = False,
) -> Part:
    """Moves the shared model along the mean of the clients' changes by an optimiser's rule.

    Args:
        rule: ``momentum``, ``adagrad``, ``adam`` or ``yogi``.
        learning_rate: eta_s >= 0; the paper searches powers of ten.
        beta_one: in [0, 1], momentum of the first moment (beta for ``momentum``; 0 for ``adagrad``).
        beta_two: in [0, 1], of the second moment (``adam`` and ``yogi``).
        tau: > 0, the degree of adaptivity.
        nesterov: for ``momentum``: theta <- theta + eta_s (D + beta m).

    Deviations: none.  Normalisation statistics are averaged and do not pass through the optimiser.
    """
    refuse_unknown_choice("rule", rule, ("momentum", *RULES))
    refuse_outside("learning_rate (eta_s)", learning_rate, 0)
    refuse_outside("beta_one", beta_one, 0, 1)
    refuse_outside("beta_two", beta_two, 0, 1)
    refuse_outside("tau", tau, 1e-12)

    def init_server(shared: Flat, initial: Initial) -> Flats:
        second = {name: torch.full_like(p, tau**2) for name, p in shared.items()}
        return {"m": zeros_like(shared), **({} if rule == "momentum" else {"v": second})}

    def heavy_ball(params: Flat, slot: Flats, change: Flat) -> tuple[Flat, Flats]:
        m = {name: beta_one * slot["m"][name] + d for name, d in change.items()}
        step = {name: change[name] + beta_one * m[name] for name in m} if nesterov else m
        return {name: params[name] + learning_rate * step[name] for name in m}, {"m": m}

    def adaptive(params: Flat, slot: Flats, change: Flat) -> tuple[Flat, Flats]:
        keep = 0.0 if rule == "adagrad" else beta_one
        m = {name: keep * slot["m"][name] + (1 - keep) * d for name, d in change.items()}
        v = {name: RULES[rule](slot["v"][name], d, beta_two) for name, d in change.items()}
        new = {name: params[name] + learning_rate * m[name] / (v[name].sqrt() + tau) for name in m}
        return new, {"m": m, "v": v}

    def merge(params: Flat, slot: Flats, mean: Flat, clock: Clock) -> tuple[Flat, Flats]:
        change = {name: mean[name] - params[name] for name in mean}
        new, slot = (heavy_ball if rule == "momentum" else adaptive)(params, slot, change)
        return {**params, **new}, slot

    return average()._replace(name="server_optimiser", init_server=init_server, merge=merge, gives_way=False)
